"""Types of blocks that the readers of channels accept."""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"


def upgrade() -> None:
    """Add a column of channels."""
    op.add_column("channel", sa.Column("accepts", sa.String(), nullable=True))
