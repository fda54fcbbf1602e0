"""The queries of views as their authors wrote them."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """A column that is empty until a view is applied again."""
    op.add_column("task", sa.Column("written", sa.Text, nullable=True))
