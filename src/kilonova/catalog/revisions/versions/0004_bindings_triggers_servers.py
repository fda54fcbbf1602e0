"""What starts runs by itself: bindings, triggers, firings, servers, and events."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_time = sa.DateTime(timezone=True)


def upgrade() -> None:
    """New tables; tasks of before belong to no binding until their workflow is applied again."""
    op.add_column("task", sa.Column("binding", sa.String(), nullable=True))
    op.create_index("ix_task_binding", "task", ["binding"])
    op.add_column("run", sa.Column("binding", sa.String(), nullable=True))
    op.create_table(
        "binding",
        sa.Column("id", _number, primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(), nullable=False, unique=True),
        sa.Column("workflow", sa.String(), nullable=False),
        sa.Column("workflowette", sa.String(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("queue", sa.Float()),
        sa.Column("alone", sa.Boolean(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
    )
    op.create_table(
        "trigger",
        sa.Column("id", _number, primary_key=True, autoincrement=True),
        sa.Column("binding_id", _number, sa.ForeignKey("binding.id"), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.Column("wake", _time),
        sa.Column("active", sa.Boolean(), nullable=False),
    )
    op.create_index("ix_trigger_binding_id", "trigger", ["binding_id"])
    op.create_index("ix_trigger_wake", "trigger", ["wake"])
    op.create_table(
        "firing",
        sa.Column("id", _number, primary_key=True, autoincrement=True),
        sa.Column("binding_id", _number, sa.ForeignKey("binding.id"), nullable=False),
        sa.Column("trigger_id", _number, sa.ForeignKey("trigger.id")),
        sa.Column("occurrence", sa.String(), nullable=False),
        sa.Column("time", _time, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("server", sa.String()),
        sa.Column("run_id", _number, sa.ForeignKey("run.id")),
        sa.Column("ended", _time),
        sa.UniqueConstraint("trigger_id", "occurrence", name="firing_once"),
    )
    op.create_index("ix_firing_state", "firing", ["state"])
    op.create_index("ix_firing_run_id", "firing", ["run_id"])
    op.create_table(
        "server",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("release", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("started", _time, nullable=False),
        sa.Column("lease_until", _time, nullable=False),
    )
    op.create_table(
        "token",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False, unique=True),
        sa.Column("created", _time, nullable=False),
    )
    op.create_table(
        "event",
        sa.Column("id", _number, primary_key=True, autoincrement=True),
        sa.Column("time", _time, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("run", sa.BigInteger()),
        sa.Column("binding", sa.String()),
        sa.Column("channels", sa.JSON(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
    )
    op.create_index("event_by_binding", "event", ["binding", "id"])
