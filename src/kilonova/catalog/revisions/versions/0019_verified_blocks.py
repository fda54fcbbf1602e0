"""How blocks were written: suffixes of their directories, their files, and digests of their manifests."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Columns that are empty for the blocks that were there before."""
    with op.batch_alter_table("block") as block:
        block.add_column(sa.Column("suffix", sa.String, nullable=True))
        block.add_column(sa.Column("stored", sa.JSON, nullable=True))
        block.add_column(sa.Column("manifest", sa.String, nullable=True))
