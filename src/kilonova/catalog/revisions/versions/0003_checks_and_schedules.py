"""What is said of channels and tasks beside what they are."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Columns that may be empty."""
    op.add_column("channel", sa.Column("description", sa.Text(), nullable=True))
    op.add_column("channel", sa.Column("checks", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("task", sa.Column("schedule", sa.JSON(none_as_null=True), nullable=True))
