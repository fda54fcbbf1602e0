"""The delta into which a delta was put together with its neighbours."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Add a column."""
    op.add_column("block", sa.Column("merged_into", sa.Integer))
