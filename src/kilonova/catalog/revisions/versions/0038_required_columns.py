"""Columns that logic versions require of their inputs, and versions that wait for them."""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"


def upgrade() -> None:
    """Add the columns of logic versions."""
    op.add_column("logic", sa.Column("requires", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("logic", sa.Column("waiting", sa.Boolean(), nullable=True))
