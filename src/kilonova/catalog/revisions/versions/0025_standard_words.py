"""States of firings and files, kinds of events and refresh methods under their present names."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"

_KINDS = {
    "idle": "skipped",
    "set aside": "file-quarantined",
    "changed": "file-changed",
    "unseen": "directory-unreadable",
    "server started": "server-started",
    "server stopped": "server-stopped",
    "server silent": "server-silent",
    "undelivered": "delivery-failed",
    "fell back": "fell-back",
}
_METHODS = {"partition-wise": "affected groups", "whole": "full", "fresh": "initial"}
_POLICIES = {"weigh": "cost-based", "after": "max-deltas", "never": "manual"}
_POLICY_KEYS = {"waste": "max_amplification"}
_COLUMNS = {
    ("firing", "state"): {"due": "queued", "idle": "skipped"},
    ("file", "state"): {"waiting": "settling", "taken": "ingested", "set aside": "quarantined"},
    ("event", "kind"): _KINDS,
    ("run_output", "way"): _METHODS,
}


def upgrade() -> None:
    """Rename the values where they are stored."""
    for (table, column), names in _COLUMNS.items():
        rows = sa.table(table, sa.column(column))
        cases = sa.case(names, value=rows.c[column])
        op.execute(sa.update(rows).where(rows.c[column].in_(list(names))).values({column: cases}))
    outlet = sa.table("outlet", sa.column("name"), sa.column("definition", sa.JSON))
    for name, definition in op.get_bind().execute(sa.select(outlet)).all():
        if "kinds" in definition:
            renamed = {**definition, "kinds": sorted(_KINDS.get(kind, kind) for kind in definition["kinds"])}
            op.execute(sa.update(outlet).where(outlet.c.name == name).values(definition=renamed))
    channel = sa.table("channel", sa.column("id"), sa.column("policy", sa.JSON(none_as_null=True)))
    for number, policy in op.get_bind().execute(sa.select(channel).where(channel.c.policy.is_not(None))).all():
        renamed = {_POLICY_KEYS.get(key, key): value for key, value in policy.items()}
        renamed["policy"] = _POLICIES[policy["policy"]]
        op.execute(sa.update(channel).where(channel.c.id == number).values(policy=renamed))
    output = sa.table("run_output", sa.column("estimates", sa.JSON))
    text: sa.ColumnElement[str] = sa.cast(output.c.estimates, sa.Text)
    for old, new in _METHODS.items():
        text = sa.func.replace(text, f'"{old}"', f'"{new}"')
    sqlite = op.get_bind().dialect.name == "sqlite"
    op.execute(sa.update(output).values(estimates=text if sqlite else sa.cast(text, sa.JSON)))
