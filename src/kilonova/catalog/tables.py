"""Tables of the catalog. Alembic revisions in `revisions/` migrate between versions of them."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)


class UtcTime(TypeDecorator[datetime]):
    """Timestamp stored in UTC; SQLite drops time zones, so results get theirs restored."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert a value for the database."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert a value from the database."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


metadata = MetaData()
_number = BigInteger().with_variant(Integer, "sqlite")

identity = Table(
    "identity",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
)

channel = Table(
    "channel",
    metadata,
    Column("id", _number, primary_key=True, autoincrement=True),
    Column("name", String, nullable=False, unique=True),
    Column("schema", JSON(none_as_null=True)),
    Column("encoding", JSON, nullable=False),
    Column("workflow", String, nullable=False),
    Column("description", Text),
    Column("checks", JSON(none_as_null=True)),
    Column("policy", JSON(none_as_null=True)),
    Column("watch", JSON(none_as_null=True)),
    Column("next_scan", UtcTime, index=True),
    Column("scan_error", Text),
    Column("adopts", Boolean),
    Column("several_writers", Boolean),
    Column("sequence_by", String),
    Column("retention", Float),
    Column("rules", JSON(none_as_null=True)),
    Column("added", JSON(none_as_null=True)),
    Column("stamp", String),
    Column("accepts", String),
)

file = Table(
    "file",
    metadata,
    Column("channel_id", ForeignKey("channel.id"), primary_key=True),
    Column("key", String, primary_key=True),
    Column("path", Text, nullable=False),
    Column("state", String, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("modified", UtcTime),
    Column("order_time", UtcTime, nullable=False),
    Column("tag", String, nullable=False),
    Column("since", UtcTime, nullable=False),
    Column("run_id", ForeignKey("run.id"), index=True),
    Column("error", Text),
    Column("changed", UtcTime),
    Index("file_by_state", "channel_id", "state", "order_time"),
)

task = Table(
    "task",
    metadata,
    Column("id", _number, primary_key=True, autoincrement=True),
    Column("name", String, nullable=False, unique=True),
    Column("workflow", String, nullable=False),
    Column("active", Boolean, nullable=False),
    Column("schedule", JSON(none_as_null=True)),
    Column("binding", String, index=True),
    Column("view", String, index=True),
    Column("written", Text),
)

logic = Table(
    "logic",
    metadata,
    Column("task_id", ForeignKey("task.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("writes", JSON, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("registered", UtcTime, nullable=False),
    Column("live", Boolean, nullable=False),
    Column("superseded", Boolean, nullable=False),
    Column("outputs", JSON, nullable=False),
    Column("written", Text),
    Column("replaced", JSON(none_as_null=True)),
    Column("faulty", UtcTime),
    Column("requires", JSON(none_as_null=True)),
    Column("waiting", Boolean),
)
"""Logic versions of tasks. A live one runs, unless it is `superseded`: kept until a newer one has used its output.

While the newest one is `waiting` for input with the columns that it `requires`, the superseded one runs, and the
channels are declared as for that. `outputs` has the declared columns, the encoding and the checks of the channels that
it writes. `replaced` has the inputs that have replaced others since its last run, each with the one on which its cursor
stands, and whether it has all rows of that. `faulty` is the time at which the version was said to be wrong.
"""

variant = Table(
    "variant",
    metadata,
    Column("task_id", ForeignKey("task.id"), primary_key=True),
    Column("logic", Integer, primary_key=True),
    Column("name", String, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("ports", JSON, nullable=False),
    Column("production", String, nullable=False),
    Column("language", String, nullable=False),
    Column("source", Text, nullable=False),
    Column("tree", Text),
    Column("pickled", LargeBinary),
    Column("fingerprint", String, nullable=False),
    Column("from_version", Integer),
)

deferred = Table(
    "deferred",
    metadata,
    Column("id", _number, primary_key=True, autoincrement=True),
    Column("workflow", String, nullable=False, unique=True),
    Column("until", UtcTime, nullable=False, index=True),
    Column("registered", UtcTime, nullable=False),
    Column("tasks", JSON, nullable=False),
    Column("definition", LargeBinary, nullable=False),
)
"""Definitions of workflows that replace the present ones at a later time; `tasks` has their new logic versions."""

workflow_file = Table(
    "workflow_file",
    metadata,
    Column("workflow", String, primary_key=True),
    Column("path", Text, nullable=False),
)
"""Files and folders from which workflows were last applied, relative to the project's directory if they are in it."""

function = Table(
    "function",
    metadata,
    Column("name", String, primary_key=True),
    Column("source", Text, nullable=False),
    Column("pickled", LargeBinary, nullable=False),
)

point = Table(
    "point",
    metadata,
    Column("channel_id", ForeignKey("channel.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("state", String, nullable=False),
    Column("version", JSON, nullable=False),
    Column("time", UtcTime),
    Column("run_id", ForeignKey("run.id"), nullable=False, index=True),
    Column("rewrites", Integer),
    Column("readable", UtcTime, index=True),
    Column("withheld", Boolean),
    Column("extended", JSON(none_as_null=True)),
    Column("extended_by", _number),
    Index("point_by_state", "channel_id", "state", "number"),
    Index("point_by_run", "channel_id", "run_id"),
)
"""Points of channels. `readable` is the time since which a filled one can be read: it grows from point to point.

A point is `withheld` from readers if it violates a bound on inconsistency that was set after it was filled. `extended`
is the version that it reflects as well since the run `extended_by`, which read more, and changed nothing.
"""

bound = Table(
    "bound",
    metadata,
    Column("id", _number, primary_key=True, autoincrement=True),
    Column("channel_id", ForeignKey("channel.id"), nullable=False),
    Column("path", String, nullable=False),
    Column("declared", Float),
    Column("seconds", Float),
    Column("changed", UtcTime),
    Column("changed_by", String),
    Column("phase", String, nullable=False),
    Column("since", UtcTime, nullable=False),
    UniqueConstraint("channel_id", "path", name="bound_once"),
)
"""Bounds of channels: on staleness along a path, or on inconsistency if the path is empty.

`declared` is the limit that the workflow declares, `seconds` the one that applies: null if the bound was removed at run
time. `changed` is set where they may differ.
"""

dropped = Table(
    "dropped",
    metadata,
    Column("name", String, primary_key=True),
    Column("point", Integer, nullable=False),
)

block = Table(
    "block",
    metadata,
    Column("id", _number, primary_key=True, autoincrement=True),
    Column("target_id", ForeignKey("channel.id"), index=True),
    Column("run_id", ForeignKey("run.id"), nullable=False, index=True),
    Column("state", String, nullable=False, index=True),
    Column("schema", JSON(none_as_null=True)),
    Column("encoding", JSON(none_as_null=True)),
    Column("columns", JSON(none_as_null=True)),
    Column("buckets", Integer),
    Column("rows", BigInteger),
    Column("bytes", BigInteger),
    Column("files", Integer),
    Column("removals", BigInteger),
    Column("net_rows", BigInteger),
    Column("external", JSON(none_as_null=True)),
    Column("suffix", String),
    Column("stored", JSON(none_as_null=True)),
    Column("verified", UtcTime),
)
"""Content of blocks. `target_id` is the channel that a run is writing a block for; null once it is written."""

placement = Table(
    "placement",
    metadata,
    Column("channel_id", ForeignKey("channel.id"), primary_key=True),
    Column("block_id", ForeignKey("block.id"), primary_key=True, index=True),
    Column("start", Integer),
    Column("end", Integer, nullable=False),
    Column("live", Boolean, nullable=False),
    Column("stamp", String, nullable=False),
    Column("manifest", String),
    Column("merged_into", Integer),
    Index("placement_by_channel", "channel_id", "live"),
)
"""Positions of blocks in channels: from `start`, null for a base, to `end`; not `live` once it was collected."""

cursor = Table(
    "cursor",
    metadata,
    Column("task_id", ForeignKey("task.id"), primary_key=True),
    Column("logic", Integer, primary_key=True),
    Column("channel_id", ForeignKey("channel.id"), primary_key=True, index=True),
    Column("point", Integer, nullable=False),
)

run = Table(
    "run",
    metadata,
    Column("id", _number, primary_key=True, autoincrement=True),
    Column("kind", String, nullable=False),
    Column("state", String, nullable=False),
    Column("tasks", JSON, nullable=False),
    Column("owner", String, nullable=False),
    Column("started", UtcTime, nullable=False),
    Column("ended", UtcTime),
    Column("lease_until", UtcTime, nullable=False),
    Column("error", Text),
    Column("binding", String),
    Column("progress", JSON(none_as_null=True)),
    Index("run_by_state", "state", "id"),
    Index("run_by_kind", "kind", "id"),
    Index("run_by_binding", "binding", "id"),
    Index("run_by_time", "started", "ended"),
)

ingest_key = Table(
    "ingest_key",
    metadata,
    Column("channel_id", ForeignKey("channel.id"), primary_key=True),
    Column("key", String, primary_key=True),
    Column("digest", String, nullable=False),
    Column("run_id", ForeignKey("run.id"), nullable=False),
    Column("time", UtcTime, nullable=False, index=True),
)

run_input = Table(
    "run_input",
    metadata,
    Column("run_id", ForeignKey("run.id"), primary_key=True),
    Column("task", String, primary_key=True),
    Column("port", String, primary_key=True),
    Column("channel_id", ForeignKey("channel.id"), nullable=False),
    Column("start", Integer, nullable=False),
    Column("end", Integer, nullable=False),
)

run_input_block = Table(
    "run_input_block",
    metadata,
    Column("run_id", ForeignKey("run.id"), primary_key=True),
    Column("task", String, primary_key=True),
    Column("channel_id", ForeignKey("channel.id"), primary_key=True, index=True),
    Column("block_id", ForeignKey("block.id"), primary_key=True, index=True),
)

run_output = Table(
    "run_output",
    metadata,
    Column("run_id", ForeignKey("run.id"), primary_key=True),
    Column("channel_id", ForeignKey("channel.id"), primary_key=True),
    Column("point", Integer, primary_key=True),
    Column("block_id", ForeignKey("block.id")),
    Column("task", String),
    Column("reason", Text, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("method", String),
    Column("change_bytes", BigInteger),
    Column("whole_bytes", BigInteger),
    Column("estimates", JSON(none_as_null=True)),
    Column("moved", Integer),
    Index("run_output_by_point", "channel_id", "point"),
    Index("run_output_by_task", "task", "run_id"),
    Index("run_output_by_channel", "channel_id", "run_id"),
)

claim = Table(
    "claim",
    metadata,
    Column("task_id", ForeignKey("task.id"), primary_key=True),
    Column("run_id", ForeignKey("run.id"), nullable=False),
)

pin = Table(
    "pin",
    metadata,
    Column("holder", String, primary_key=True),
    Column("blocks", JSON, nullable=False),
    Column("until", UtcTime, nullable=False),
)

binding = Table(
    "binding",
    metadata,
    Column("id", _number, primary_key=True, autoincrement=True),
    Column("name", String, nullable=False, unique=True),
    Column("workflow", String, nullable=False),
    Column("workflowette", String, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("merge_window", Float),
    Column("implicit", Boolean, nullable=False),
    Column("active", Boolean, nullable=False),
    Column("paused", Boolean, nullable=False),
)

trigger = Table(
    "trigger",
    metadata,
    Column("id", _number, primary_key=True, autoincrement=True),
    Column("binding_id", ForeignKey("binding.id"), nullable=False, index=True),
    Column("definition", JSON, nullable=False),
    Column("state", JSON, nullable=False),
    Column("next_check", UtcTime, index=True),
    Column("active", Boolean, nullable=False),
)

firing = Table(
    "firing",
    metadata,
    Column("id", _number, primary_key=True, autoincrement=True),
    Column("binding_id", ForeignKey("binding.id"), nullable=False),
    Column("trigger_id", ForeignKey("trigger.id")),
    Column("occurrence", String, nullable=False),
    Column("time", UtcTime, nullable=False),
    Column("state", String, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("server", String),
    Column("run_id", ForeignKey("run.id"), index=True),
    Column("ended", UtcTime),
    Column("since", UtcTime),
    Column("stuck", Boolean),
    Column("lost", Integer),
    Column("due_only", Boolean, nullable=False),
    Column("reason", Text),
    Column("scope", JSON(none_as_null=True)),
    UniqueConstraint("trigger_id", "occurrence", name="firing_once"),
    Index("firing_by_binding", "binding_id", "id"),
    Index("firing_by_state", "state", "id"),
)

server = Table(
    "server",
    metadata,
    Column("name", String, primary_key=True),
    Column("release", String, nullable=False),
    Column("state", String, nullable=False),
    Column("started", UtcTime, nullable=False),
    Column("lease_until", UtcTime, nullable=False),
)

token = Table(
    "token",
    metadata,
    Column("name", String, primary_key=True),
    Column("role", String, nullable=False),
    Column("digest", String, nullable=False, unique=True),
    Column("created", UtcTime, nullable=False),
)

event = Table(
    "event",
    metadata,
    Column("id", _number, primary_key=True, autoincrement=True),
    Column("time", UtcTime, nullable=False),
    Column("kind", String, nullable=False),
    Column("run", BigInteger),
    Column("binding", String),
    Column("channels", JSON, nullable=False),
    Column("text", Text, nullable=False),
    Index("event_by_binding", "binding", "id"),
    Index("event_by_kind", "kind", "id"),
    Index("event_of_binding_by_kind", "binding", "kind", "id"),
)

subscription = Table(
    "subscription",
    metadata,
    Column("name", String, primary_key=True),
    Column("definition", JSON, nullable=False),
    Column("created", UtcTime, nullable=False),
    Column("cursor", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("failing", UtcTime),
    Column("retry", UtcTime),
    Column("problem", Text, nullable=False),
    Column("delivered", UtcTime),
    Column("holder", String),
    Column("lease_until", UtcTime),
)
