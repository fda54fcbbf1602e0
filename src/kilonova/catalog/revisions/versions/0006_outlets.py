"""Where events are told to: outlets; and since when firings have been due."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_time = sa.DateTime(timezone=True)


def upgrade() -> None:
    """A new table, and firings that are due have been so since their occurrence."""
    op.add_column("firing", sa.Column("since", _time, nullable=True))
    op.add_column("firing", sa.Column("stuck", sa.Boolean(), nullable=True))
    op.execute("UPDATE firing SET since = time")
    op.create_table(
        "outlet",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("created", _time, nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("failing", _time),
        sa.Column("retry", _time),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("delivered", _time),
        sa.Column("holder", sa.String()),
        sa.Column("lease_until", _time),
    )
