"""Channels, points, blocks, tasks, cursors, runs, provenance, claims and pins."""

import sqlalchemy as sa
from alembic import op

from kilonova.catalog import tables

revision = "0001"
down_revision = None

number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """From nothing."""
    op.create_table(
        "channel",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("schema", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("encoding", sa.JSON(), nullable=False),
        sa.Column("workflow", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
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
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_run_state"), "run", ["state"], unique=False)
    op.create_table(
        "task",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("workflow", sa.String(), nullable=False),
        sa.Column("logic", sa.Integer(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "block",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("channel_id", number, nullable=True),
        sa.Column("run_id", number, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=True),
        sa.Column("end", sa.Integer(), nullable=True),
        sa.Column("schema", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("encoding", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("columns", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("buckets", sa.Integer(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("files", sa.Integer(), nullable=True),
        sa.Column("removals", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["channel_id"],
            ["channel.id"],
        ),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_block_channel_id"), "block", ["channel_id"], unique=False)
    op.create_index(op.f("ix_block_run_id"), "block", ["run_id"], unique=False)
    op.create_index(op.f("ix_block_state"), "block", ["state"], unique=False)
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
        sa.Column("channel_id", number, nullable=False),
        sa.Column("point", sa.Integer(), nullable=False),
        sa.Column("logic", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["channel_id"],
            ["channel.id"],
        ),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["task.id"],
        ),
        sa.PrimaryKeyConstraint("task_id", "channel_id"),
    )
    op.create_table(
        "logic",
        sa.Column("task_id", number, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("writes", sa.JSON(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("registered", tables.UtcTime(timezone=True), nullable=False),
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
        "variant",
        sa.Column("task_id", number, nullable=False),
        sa.Column("logic", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("ports", sa.JSON(), nullable=False),
        sa.Column("production", sa.String(), nullable=False),
        sa.Column("language", sa.String(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("pickled", sa.LargeBinary(), nullable=True),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["task.id"],
        ),
        sa.PrimaryKeyConstraint("task_id", "logic", "name"),
    )
    op.create_table(
        "pin",
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("block_id", number, nullable=False),
        sa.Column("until", tables.UtcTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["block_id"],
            ["block.id"],
        ),
        sa.PrimaryKeyConstraint("holder", "block_id"),
    )
    op.create_table(
        "run_input_block",
        sa.Column("run_id", number, nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("block_id", number, nullable=False),
        sa.ForeignKeyConstraint(
            ["block_id"],
            ["block.id"],
        ),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("run_id", "task", "block_id"),
    )
    op.create_table(
        "run_output",
        sa.Column("run_id", number, nullable=False),
        sa.Column("channel_id", number, nullable=False),
        sa.Column("point", sa.Integer(), nullable=False),
        sa.Column("block_id", number, nullable=True),
        sa.Column("task", sa.String(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
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
        sa.PrimaryKeyConstraint("run_id", "channel_id"),
    )
    op.create_index("run_output_by_point", "run_output", ["channel_id", "point"], unique=False)
