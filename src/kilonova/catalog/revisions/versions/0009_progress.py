"""How far a run has come, while it goes on."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """A column that is empty for runs that have ended."""
    op.add_column("run", sa.Column("progress", sa.JSON(none_as_null=True), nullable=True))
