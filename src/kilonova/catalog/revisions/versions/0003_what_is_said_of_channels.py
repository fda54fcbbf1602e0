"""What is said of channels beside how they read."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Columns that may be empty."""
    op.add_column("channel", sa.Column("description", sa.Text(), nullable=True))
    op.add_column("channel", sa.Column("checks", sa.JSON(none_as_null=True), nullable=True))
