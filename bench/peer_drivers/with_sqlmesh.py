"""`python with_sqlmesh.py PLACE`: ten epochs of a SQLMesh model on DuckDB, whose query changes in the ninth.

An epoch is a day. PLACE and what is printed are as in `with_dbt.py`.
"""

import json
import sys
import time
from datetime import date, timedelta
from pathlib import Path

from crawl import arrive, wrong
from sqlmesh import Context
from sqlmesh.core.snapshot.evaluator import SnapshotEvaluator
from sqlmesh.utils.date import to_datetime

CONFIG = """gateways:
  local: {{connection: {{type: duckdb, database: '{place}/crawl.duckdb'}}}}
default_gateway: local
model_defaults: {{dialect: duckdb, start: '2026-01-01'}}
disable_anonymized_analytics: true
"""
BY_DAY = "MODEL (name crawl.result, kind INCREMENTAL_BY_TIME_RANGE (time_column day), cron '@daily');\n"
WHOLE = "MODEL (name crawl.result, kind FULL, cron '@daily');\n"
OF_DAYS = " AND p.day BETWEEN @start_date AND @end_date"
FIRST = date(2026, 1, 1)


def main(place: Path) -> None:
    case = json.loads((place / "case.json").read_text())
    (place / "models").mkdir()
    (place / "config.yaml").write_text(CONFIG.format(place=place))
    days, seconds, read, context = watched(), [], 0, None
    for epoch in range(1, case["epochs"] + 1):
        arrive(place, epoch)
        changed = epoch == case["change"]
        query = case["after" if epoch >= case["change"] else "before"]
        model = BY_DAY + query + OF_DAYS if case["grows"] else WHOLE + query
        (place / "models" / "result.sql").write_text(model)
        now = str(FIRST + timedelta(days=epoch))
        if context is None or changed:
            context = Context(paths=str(place))
        days.clear()
        began = time.perf_counter()
        if epoch == 1 or changed:
            forward = changed and case["mode"] == "forward-only"
            context.plan(
                auto_apply=True,
                no_prompts=True,
                skip_tests=True,
                forward_only=forward,
                allow_destructive_models=["crawl.result"],
                execution_time=now,
            )
        context.run(execution_time=now, ignore_cron=True)
        seconds.append(time.perf_counter() - began)
        if changed:
            read = len(set(days)) if case["grows"] else epoch
    context.close()
    print(json.dumps({"seconds": seconds, "read": read, "wrong": wrong(place, case, "crawl.crawl.result")}))


def watched() -> list[str]:
    """The days for which a model is evaluated, from now on."""
    days: list[str] = []
    evaluate = SnapshotEvaluator.evaluate

    def watching(self, snapshot, *args, start, end, **named):
        first, last = to_datetime(start), to_datetime(end)  # the end is excluded
        days.extend(str((first + timedelta(days=n)).date()) for n in range(round((last - first) / timedelta(days=1))))
        return evaluate(self, snapshot, *args, start=start, end=end, **named)

    SnapshotEvaluator.evaluate = watching
    return days


if __name__ == "__main__":
    main(Path(sys.argv[1]))
