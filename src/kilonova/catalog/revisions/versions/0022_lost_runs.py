"""How many runs of a firing were lost with their server."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Add a column."""
    op.add_column("firing", sa.Column("lost", sa.Integer))
