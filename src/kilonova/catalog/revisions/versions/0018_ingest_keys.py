"""Ingests that are carried out once, however often they are asked for."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """A table of the keys under which ingests were asked for."""
    op.create_table(
        "ingest_key",
        sa.Column("channel_id", _number, sa.ForeignKey("channel.id"), primary_key=True),
        sa.Column("key", sa.String(), primary_key=True),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("run_id", _number, sa.ForeignKey("run.id"), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("ix_ingest_key_time", "ingest_key", ["time"])
