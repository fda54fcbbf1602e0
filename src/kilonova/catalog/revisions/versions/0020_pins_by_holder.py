"""One row for all blocks that a holder has pinned, as ranges of their numbers."""

from itertools import groupby

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Take over the pins of readers that are at it."""
    pin = sa.table("pin", sa.column("holder"), sa.column("block_id"), sa.column("until"))
    query = sa.select(pin.c.holder, pin.c.block_id, pin.c.until).order_by(pin.c.holder, pin.c.block_id)
    old = op.get_bind().execute(query).all()
    op.drop_table("pin")
    op.create_table(
        "pin",
        sa.Column("holder", sa.String, primary_key=True),
        sa.Column("blocks", sa.JSON, nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
    )
    new = sa.table("pin", sa.column("holder"), sa.column("blocks", sa.JSON), sa.column("until"))
    for holder, rows in groupby(old, key=lambda row: row.holder):
        mine = list(rows)
        blocks = [[row.block_id, row.block_id] for row in mine]
        op.get_bind().execute(sa.insert(new).values(holder=holder, blocks=blocks, until=mine[0].until))
