"""Watched directories: what a channel watches, and the files that were seen, each once."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_time = sa.DateTime(timezone=True)


def upgrade() -> None:
    """New columns and a new table; nothing is watched yet."""
    op.add_column("channel", sa.Column("watch", sa.JSON(), nullable=True))
    op.add_column("channel", sa.Column("next_look", _time, nullable=True))
    op.add_column("channel", sa.Column("look_error", sa.Text(), nullable=True))
    op.create_index("ix_channel_next_look", "channel", ["next_look"])
    op.create_table(
        "file",
        sa.Column("channel_id", _number, sa.ForeignKey("channel.id"), primary_key=True),
        sa.Column("key", sa.String(), primary_key=True),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("modified", _time),
        sa.Column("tag", sa.String(), nullable=False),
        sa.Column("since", _time, nullable=False),
        sa.Column("run_id", _number, sa.ForeignKey("run.id")),
        sa.Column("error", sa.Text()),
        sa.Column("changed", _time),
    )
    op.create_index("ix_file_run_id", "file", ["run_id"])
    op.create_index("file_by_state", "file", ["channel_id", "state", "modified"])
