"""What runs were estimated to take."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """A column that is empty for what was made before."""
    op.add_column("run_output", sa.Column("estimates", sa.JSON(none_as_null=True), nullable=True))
