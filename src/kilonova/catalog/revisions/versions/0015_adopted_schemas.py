"""Channels whose columns are those that their task's rows have."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """A column that is empty for the channels that were there before."""
    op.add_column("channel", sa.Column("adopts", sa.Boolean, nullable=True))
