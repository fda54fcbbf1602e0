"""Indexes by which what a run looks at is found however long the history is."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """New indexes; one of blocks in the place of another."""
    op.create_index("ix_point_run_id", "point", ["run_id"])
    op.create_index("point_by_state", "point", ["channel_id", "state", "number"])
    op.drop_index("ix_block_channel_id", "block")
    op.create_index("block_by_channel", "block", ["channel_id", "state"])
    op.create_index("ix_cursor_channel_id", "cursor", ["channel_id"])
    op.create_index("ix_run_input_block_block_id", "run_input_block", ["block_id"])
    op.create_index("run_output_by_task", "run_output", ["task", "run_id"])
    op.create_index("firing_by_binding", "firing", ["binding_id", "id"])
