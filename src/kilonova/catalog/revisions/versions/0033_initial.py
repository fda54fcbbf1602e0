"""The tables of the first release."""

import sqlalchemy as sa
from alembic import op

from kilonova.catalog import tables

revision = "0033"
down_revision = None

number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
optional_json = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "binding",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("workflow", sa.String(), nullable=False),
        sa.Column("workflowette", sa.String(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("merge_window", sa.Float(), nullable=True),
        sa.Column("implicit", sa.Boolean(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "channel",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("schema", optional_json, nullable=True),
        sa.Column("encoding", sa.JSON(), nullable=False),
        sa.Column("workflow", sa.String(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("checks", optional_json, nullable=True),
        sa.Column("policy", optional_json, nullable=True),
        sa.Column("watch", optional_json, nullable=True),
        sa.Column("next_scan", tables.UtcTime(timezone=True), nullable=True),
        sa.Column("scan_error", sa.Text(), nullable=True),
        sa.Column("adopts", sa.Boolean(), nullable=True),
        sa.Column("several_writers", sa.Boolean(), nullable=True),
        sa.Column("sequence_by", sa.String(), nullable=True),
        sa.Column("retention", sa.Float(), nullable=True),
        sa.Column("rules", optional_json, nullable=True),
        sa.Column("added", optional_json, nullable=True),
        sa.Column("stamp", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_index(op.f("ix_channel_next_scan"), "channel", ["next_scan"], unique=False)
    op.create_table(
        "deferred",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("workflow", sa.String(), nullable=False),
        sa.Column("until", tables.UtcTime(timezone=True), nullable=False),
        sa.Column("registered", tables.UtcTime(timezone=True), nullable=False),
        sa.Column("tasks", sa.JSON(), nullable=False),
        sa.Column("definition", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("workflow"),
    )
    op.create_index(op.f("ix_deferred_until"), "deferred", ["until"], unique=False)
    op.create_table(
        "dropped",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("point", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "event",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("time", tables.UtcTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=True),
        sa.Column("binding", sa.String(), nullable=True),
        sa.Column("channels", sa.JSON(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("event_by_binding", "event", ["binding", "id"], unique=False)
    op.create_index("event_by_kind", "event", ["kind", "id"], unique=False)
    op.create_index("event_of_binding_by_kind", "event", ["binding", "kind", "id"], unique=False)
    op.create_table(
        "function",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("pickled", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "identity",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "pin",
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("blocks", sa.JSON(), nullable=False),
        sa.Column("until", tables.UtcTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("holder"),
    )
    op.create_table(
        "run",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("tasks", sa.JSON(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("started", tables.UtcTime(timezone=True), nullable=False),
        sa.Column("ended", tables.UtcTime(timezone=True), nullable=True),
        sa.Column("lease_until", tables.UtcTime(timezone=True), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("binding", sa.String(), nullable=True),
        sa.Column("progress", optional_json, nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("run_by_binding", "run", ["binding", "id"], unique=False)
    op.create_index("run_by_kind", "run", ["kind", "id"], unique=False)
    op.create_index("run_by_state", "run", ["state", "id"], unique=False)
    op.create_index("run_by_time", "run", ["started", "ended"], unique=False)
    op.create_table(
        "server",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("release", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("started", tables.UtcTime(timezone=True), nullable=False),
        sa.Column("lease_until", tables.UtcTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "subscription",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("created", tables.UtcTime(timezone=True), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("failing", tables.UtcTime(timezone=True), nullable=True),
        sa.Column("retry", tables.UtcTime(timezone=True), nullable=True),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("delivered", tables.UtcTime(timezone=True), nullable=True),
        sa.Column("holder", sa.String(), nullable=True),
        sa.Column("lease_until", tables.UtcTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "task",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("workflow", sa.String(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("schedule", optional_json, nullable=True),
        sa.Column("binding", sa.String(), nullable=True),
        sa.Column("view", sa.String(), nullable=True),
        sa.Column("written", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_index(op.f("ix_task_binding"), "task", ["binding"], unique=False)
    op.create_index(op.f("ix_task_view"), "task", ["view"], unique=False)
    op.create_table(
        "token",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("created", tables.UtcTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "block",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("target_id", number, nullable=True),
        sa.Column("run_id", number, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("schema", optional_json, nullable=True),
        sa.Column("encoding", optional_json, nullable=True),
        sa.Column("columns", optional_json, nullable=True),
        sa.Column("buckets", sa.Integer(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("files", sa.Integer(), nullable=True),
        sa.Column("removals", sa.BigInteger(), nullable=True),
        sa.Column("net_rows", sa.BigInteger(), nullable=True),
        sa.Column("external", optional_json, nullable=True),
        sa.Column("suffix", sa.String(), nullable=True),
        sa.Column("stored", optional_json, nullable=True),
        sa.Column("verified", tables.UtcTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["target_id"],
            ["channel.id"],
        ),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_block_run_id"), "block", ["run_id"], unique=False)
    op.create_index(op.f("ix_block_state"), "block", ["state"], unique=False)
    op.create_index(op.f("ix_block_target_id"), "block", ["target_id"], unique=False)
    op.create_table(
        "placement",
        sa.Column("channel_id", number, nullable=False),
        sa.Column("block_id", number, nullable=False),
        sa.Column("start", sa.Integer(), nullable=True),
        sa.Column("end", sa.Integer(), nullable=False),
        sa.Column("live", sa.Boolean(), nullable=False),
        sa.Column("stamp", sa.String(), nullable=False),
        sa.Column("manifest", sa.String(), nullable=True),
        sa.Column("merged_into", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["block_id"],
            ["block.id"],
        ),
        sa.ForeignKeyConstraint(
            ["channel_id"],
            ["channel.id"],
        ),
        sa.PrimaryKeyConstraint("channel_id", "block_id"),
    )
    op.create_index("placement_by_channel", "placement", ["channel_id", "live"], unique=False)
    op.create_index(op.f("ix_placement_block_id"), "placement", ["block_id"], unique=False)
    op.create_table(
        "claim",
        sa.Column("task_id", number, nullable=False),
        sa.Column("run_id", number, nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["run.id"],
        ),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["task.id"],
        ),
        sa.PrimaryKeyConstraint("task_id"),
    )
    op.create_table(
        "cursor",
        sa.Column("task_id", number, nullable=False),
        sa.Column("logic", sa.Integer(), nullable=False),
        sa.Column("channel_id", number, nullable=False),
        sa.Column("point", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["channel_id"],
            ["channel.id"],
        ),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["task.id"],
        ),
        sa.PrimaryKeyConstraint("task_id", "logic", "channel_id"),
    )
    op.create_index(op.f("ix_cursor_channel_id"), "cursor", ["channel_id"], unique=False)
    op.create_table(
        "file",
        sa.Column("channel_id", number, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("modified", tables.UtcTime(timezone=True), nullable=True),
        sa.Column("order_time", tables.UtcTime(timezone=True), nullable=False),
        sa.Column("tag", sa.String(), nullable=False),
        sa.Column("since", tables.UtcTime(timezone=True), nullable=False),
        sa.Column("run_id", number, nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("changed", tables.UtcTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["channel_id"],
            ["channel.id"],
        ),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("channel_id", "key"),
    )
    op.create_index("file_by_state", "file", ["channel_id", "state", "order_time"], unique=False)
    op.create_index(op.f("ix_file_run_id"), "file", ["run_id"], unique=False)
    op.create_table(
        "ingest_key",
        sa.Column("channel_id", number, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("run_id", number, nullable=False),
        sa.Column("time", tables.UtcTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["channel_id"],
            ["channel.id"],
        ),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("channel_id", "key"),
    )
    op.create_index(op.f("ix_ingest_key_time"), "ingest_key", ["time"], unique=False)
    op.create_table(
        "logic",
        sa.Column("task_id", number, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("writes", sa.JSON(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("registered", tables.UtcTime(timezone=True), nullable=False),
        sa.Column("live", sa.Boolean(), nullable=False),
        sa.Column("superseded", sa.Boolean(), nullable=False),
        sa.Column("outputs", sa.JSON(), nullable=False),
        sa.Column("written", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["task.id"],
        ),
        sa.PrimaryKeyConstraint("task_id", "version"),
    )
    op.create_table(
        "point",
        sa.Column("channel_id", number, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("version", sa.JSON(), nullable=False),
        sa.Column("time", tables.UtcTime(timezone=True), nullable=True),
        sa.Column("run_id", number, nullable=False),
        sa.ForeignKeyConstraint(
            ["channel_id"],
            ["channel.id"],
        ),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("channel_id", "number"),
    )
    op.create_index(op.f("ix_point_run_id"), "point", ["run_id"], unique=False)
    op.create_index("point_by_run", "point", ["channel_id", "run_id"], unique=False)
    op.create_index("point_by_state", "point", ["channel_id", "state", "number"], unique=False)
    op.create_table(
        "run_input",
        sa.Column("run_id", number, nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("port", sa.String(), nullable=False),
        sa.Column("channel_id", number, nullable=False),
        sa.Column("start", sa.Integer(), nullable=False),
        sa.Column("end", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["channel_id"],
            ["channel.id"],
        ),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("run_id", "task", "port"),
    )
    op.create_table(
        "trigger",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("binding_id", number, nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.Column("next_check", tables.UtcTime(timezone=True), nullable=True),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["binding_id"],
            ["binding.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_trigger_binding_id"), "trigger", ["binding_id"], unique=False)
    op.create_index(op.f("ix_trigger_next_check"), "trigger", ["next_check"], unique=False)
    op.create_table(
        "variant",
        sa.Column("task_id", number, nullable=False),
        sa.Column("logic", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("ports", sa.JSON(), nullable=False),
        sa.Column("production", sa.String(), nullable=False),
        sa.Column("language", sa.String(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("tree", sa.Text(), nullable=True),
        sa.Column("pickled", sa.LargeBinary(), nullable=True),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("from_version", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["task.id"],
        ),
        sa.PrimaryKeyConstraint("task_id", "logic", "name"),
    )
    op.create_table(
        "firing",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("binding_id", number, nullable=False),
        sa.Column("trigger_id", number, nullable=True),
        sa.Column("occurrence", sa.String(), nullable=False),
        sa.Column("time", tables.UtcTime(timezone=True), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("server", sa.String(), nullable=True),
        sa.Column("run_id", number, nullable=True),
        sa.Column("ended", tables.UtcTime(timezone=True), nullable=True),
        sa.Column("since", tables.UtcTime(timezone=True), nullable=True),
        sa.Column("stuck", sa.Boolean(), nullable=True),
        sa.Column("lost", sa.Integer(), nullable=True),
        sa.Column("due_only", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["binding_id"],
            ["binding.id"],
        ),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["run.id"],
        ),
        sa.ForeignKeyConstraint(
            ["trigger_id"],
            ["trigger.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("trigger_id", "occurrence", name="firing_once"),
    )
    op.create_index("firing_by_binding", "firing", ["binding_id", "id"], unique=False)
    op.create_index("firing_by_state", "firing", ["state", "id"], unique=False)
    op.create_index(op.f("ix_firing_run_id"), "firing", ["run_id"], unique=False)
    op.create_table(
        "run_input_block",
        sa.Column("run_id", number, nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("channel_id", number, nullable=False),
        sa.Column("block_id", number, nullable=False),
        sa.ForeignKeyConstraint(
            ["block_id"],
            ["block.id"],
        ),
        sa.ForeignKeyConstraint(
            ["channel_id"],
            ["channel.id"],
        ),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("run_id", "task", "channel_id", "block_id"),
    )
    op.create_index(op.f("ix_run_input_block_channel_id"), "run_input_block", ["channel_id"], unique=False)
    op.create_index(op.f("ix_run_input_block_block_id"), "run_input_block", ["block_id"], unique=False)
    op.create_table(
        "run_output",
        sa.Column("run_id", number, nullable=False),
        sa.Column("channel_id", number, nullable=False),
        sa.Column("point", sa.Integer(), nullable=False),
        sa.Column("block_id", number, nullable=True),
        sa.Column("task", sa.String(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("method", sa.String(), nullable=True),
        sa.Column("change_bytes", sa.BigInteger(), nullable=True),
        sa.Column("whole_bytes", sa.BigInteger(), nullable=True),
        sa.Column("estimates", optional_json, nullable=True),
        sa.Column("moved", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["block_id"],
            ["block.id"],
        ),
        sa.ForeignKeyConstraint(
            ["channel_id"],
            ["channel.id"],
        ),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("run_id", "channel_id", "point"),
    )
    op.create_index("run_output_by_channel", "run_output", ["channel_id", "run_id"], unique=False)
    op.create_index("run_output_by_point", "run_output", ["channel_id", "point"], unique=False)
    op.create_index("run_output_by_task", "run_output", ["task", "run_id"], unique=False)
