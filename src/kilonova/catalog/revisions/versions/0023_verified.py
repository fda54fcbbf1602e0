"""When the content of a block was last verified."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Add a column."""
    op.add_column("block", sa.Column("verified", sa.DateTime(timezone=True)))
