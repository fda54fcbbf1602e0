"""Channels that several tasks write, each of a run's tasks at a point of its own."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """A column that is empty for the channels that were there before; what a run made is told by point."""
    op.add_column("channel", sa.Column("several_writers", sa.Boolean, nullable=True))
    with op.batch_alter_table("run_output", naming_convention={"pk": "%(table_name)s_pkey"}) as table:
        table.drop_constraint("run_output_pkey", type_="primary")
        table.create_primary_key("run_output_pkey", ["run_id", "channel_id", "point"])
