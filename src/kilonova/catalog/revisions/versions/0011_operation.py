"""Indexes by which runs, events and firings are found by what they are, however many there are."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """New indexes; two of them in the place of others."""
    op.drop_index("ix_run_state", "run")
    op.create_index("run_by_state", "run", ["state", "id"])
    op.create_index("run_by_kind", "run", ["kind", "id"])
    op.create_index("run_by_binding", "run", ["binding", "id"])
    op.create_index("run_by_time", "run", ["started", "ended"])
    op.create_index("point_by_run", "point", ["channel_id", "run_id"])
    op.create_index("run_output_by_channel", "run_output", ["channel_id", "run_id"])
    op.drop_index("ix_firing_state", "firing")
    op.create_index("firing_by_state", "firing", ["state", "id"])
    op.create_index("event_by_kind", "event", ["kind", "id"])
    op.create_index("event_of_binding_by_kind", "event", ["binding", "kind", "id"])
