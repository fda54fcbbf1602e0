"""Stands in for the revision of what runs made, until that is merged."""

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Nothing."""
