"""The newest points of channels that were dropped."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """A table of names; what was dropped before is forgotten."""
    op.create_table(
        "dropped",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("point", sa.Integer, nullable=False),
    )
