"""`python with_dbt.py PLACE`: ten epochs of a dbt model on DuckDB, whose query changes in the ninth.

PLACE has `case.json` with the queries, and gets each epoch's pages from `arrivals`. Prints JSON: the seconds of dbt's
model in each epoch, the epochs of pages that it has read in the changed one, and the rows that are wrong at the end.
"""

import json
import sys
from pathlib import Path

from crawl import arrive, wrong
from dbt.cli.main import dbtRunner

PROFILE = "crawl:\n  target: dev\n  outputs:\n    dev: {{type: duckdb, path: '{place}/crawl.duckdb', threads: 2}}\n"
PROJECT = "name: crawl\nprofile: crawl\nmodel-paths: [models]\nflags: {send_anonymous_usage_stats: false}\n"
INCREMENTAL = "{{{{ config(materialized='incremental', on_schema_change='sync_all_columns') }}}}\n{query}"
NEW_ONLY = "\n{% if is_incremental() %} AND p.epoch > (SELECT max(epoch) FROM {{ this }}) {% endif %}\n"


def main(place: Path) -> None:
    case = json.loads((place / "case.json").read_text())
    (place / "models").mkdir()
    (place / "profiles.yml").write_text(PROFILE.format(place=place))
    (place / "dbt_project.yml").write_text(PROJECT)
    dbt, seconds, read = dbtRunner(), [], 0
    for epoch in range(1, case["epochs"] + 1):
        arrive(place, epoch)
        changed = epoch == case["change"]
        query = case["after" if epoch >= case["change"] else "before"]
        model = INCREMENTAL.format(query=query) + NEW_ONLY if case["grows"] else query
        if not case["grows"]:
            model = "{{ config(materialized='table') }}\n" + query
        (place / "models" / "result.sql").write_text(model)
        full = ["--full-refresh"] if changed and case["mode"] == "full refresh" else []
        where = ["--project-dir", str(place), "--profiles-dir", str(place), "--log-level", "error", "--quiet"]
        done = dbt.invoke(["run", *full, *where])
        if not done.success:
            raise RuntimeError(str(done.exception or [each.message for each in done.result.results]))
        (result,) = done.result.results
        seconds.append(result.execution_time)
        if changed:
            read = 1 if "max(epoch)" in result.node.compiled_code else epoch
    print(json.dumps({"seconds": seconds, "read": read, "wrong": wrong(place, case, "main.result")}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
