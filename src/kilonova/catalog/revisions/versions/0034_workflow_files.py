"""The files of workflows."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    """Create the table of the files from which workflows were applied."""
    op.create_table(
        "workflow_file",
        sa.Column("workflow", sa.String(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("workflow"),
    )
