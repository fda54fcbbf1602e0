"""How many of the relations that a task read had changed."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """A column that is empty for the runs that were there before."""
    op.add_column("run_output", sa.Column("moved", sa.Integer, nullable=True))
