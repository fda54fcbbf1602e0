"""How a task was done in a run, and how much there was to read for it."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Three columns that may be empty."""
    op.add_column("run_output", sa.Column("way", sa.String(), nullable=True))
    op.add_column("run_output", sa.Column("change_bytes", sa.BigInteger(), nullable=True))
    op.add_column("run_output", sa.Column("whole_bytes", sa.BigInteger(), nullable=True))
