"""The workflow of the servers' soak test: 20 source channels and 50 tasks, bound and triggered in all ways.

Of the sources, the even ones are appended to and the odd ones changed by key. Over them there are sums by group
(`g00` to `g19`), joins of two (`j0` to `j9`), sums of sums (`u0` to `u9`), and a workflowette with a Python task that
is bound ten times (`picks_0` to `picks_9`).
"""

from __future__ import annotations

import kilonova as kn

SOURCES = tuple(f"s{number:02}" for number in range(20))
COLUMNS = "id bigint, k int, v bigint"

picking = kn.Workflowette("picking")
picking.channel("rows", COLUMNS)
picking.channel("picked", "id bigint, v bigint", encoding="changes")


@picking.task
def picked(rows: kn.Changes) -> kn.Delta:
    return rows.where("k = 1").select("id", "v", "_weight")


serving = kn.Workflow("serving")
for number, source in enumerate(SOURCES):
    serving.channel(source, COLUMNS, key="id" if number % 2 else None)
    serving.view(f"g{number:02}", f"SELECT k, count(*) AS n, sum(v) AS v FROM {source} GROUP BY k")
for number in range(10):
    one, other = SOURCES[number], SOURCES[number + 10]
    serving.view(f"j{number}", f"SELECT a.id, a.v + b.v AS v FROM {one} AS a JOIN {other} AS b ON a.id = b.id")
    serving.view(
        f"u{number}",
        f"SELECT sum(n) AS n, sum(v) AS v FROM (SELECT * FROM g{number:02} UNION ALL SELECT * FROM g{number + 10})",
    )
    serving.bind(
        f"picks_{number}",
        picking,
        {"rows": SOURCES[2 * number], "picked": f"picked_{number}"},
        on=[
            kn.arrival(SOURCES[2 * number], rows=30, age="2 seconds"),
            kn.all_of(kn.after("g00"), kn.every("5 seconds")),
        ],
        priority=number % 3,
    )
serving.workflowette("pair", ["j0", "j1"], on=[kn.arrival(name) for name in ("s00", "s01", "s10", "s11")])
serving.workflowette("chain", ["g02", "g12", "u2"], on=[kn.arrival("s02"), kn.arrival("s12"), kn.cron("* * * * *")])
