"""A stamp of each channel, which changes with its points and live blocks."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    """Add a column."""
    op.add_column("channel", sa.Column("stamp", sa.String()))
