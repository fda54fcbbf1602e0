"""Blocks that are files outside of the warehouse."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """A column that is empty for the blocks in the warehouse."""
    op.add_column("block", sa.Column("external", sa.JSON, nullable=True))
