"""Bounds of channels, and the times since which points can be read."""

import sqlalchemy as sa
from alembic import op

from kilonova.catalog import tables

revision = "0036"
down_revision = "0035"

number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_READABLE = """
    UPDATE point SET readable = ended.time
    FROM (
        SELECT channel_id, number, max(time) OVER (PARTITION BY channel_id ORDER BY number) AS time FROM point
    ) AS ended
    WHERE point.state = 'filled' AND ended.channel_id = point.channel_id AND ended.number = point.number
    AND NOT EXISTS (
        SELECT 1 FROM point AS pending
        WHERE pending.channel_id = point.channel_id AND pending.state = 'reserved' AND pending.number < point.number
    )
"""
"""Statement that gives each existing point the time at which the last of those up to it had ended."""


def upgrade() -> None:
    """Add the table of bounds, and columns of points for them."""
    op.create_table(
        "bound",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("channel_id", number, nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("declared", sa.Float(), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("changed", tables.UtcTime(timezone=True), nullable=True),
        sa.Column("changed_by", sa.String(), nullable=True),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("since", tables.UtcTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["channel_id"], ["channel.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("channel_id", "path", name="bound_once"),
    )
    op.add_column("point", sa.Column("readable", tables.UtcTime(timezone=True), nullable=True))
    op.add_column("point", sa.Column("withheld", sa.Boolean(), nullable=True))
    op.add_column("point", sa.Column("extended", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("point", sa.Column("extended_by", number, nullable=True))
    op.create_index(op.f("ix_point_readable"), "point", ["readable"], unique=False)
    op.execute(_READABLE)
