"""Scopes of firings, so that a run that is retried reads what the lost one was to read."""

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"


def upgrade() -> None:
    """Add the column."""
    op.add_column("firing", sa.Column("scope", sa.JSON(none_as_null=True), nullable=True))
