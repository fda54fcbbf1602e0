"""Changes of the structure of workflows, and faulty logic versions."""

import sqlalchemy as sa
from alembic import op

from kilonova.catalog import tables

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    """Add columns of logic versions and points."""
    op.add_column("logic", sa.Column("replaced", sa.JSON(), nullable=True))
    op.add_column("logic", sa.Column("faulty", tables.UtcTime(timezone=True), nullable=True))
    op.add_column("point", sa.Column("rewrites", sa.Integer(), nullable=True))
