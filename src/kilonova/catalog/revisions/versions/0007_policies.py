"""When channels are compacted by themselves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """A column of channels."""
    op.add_column("channel", sa.Column("policy", sa.JSON(none_as_null=True), nullable=True))
