"""Stand-ins for the loop of a server: what needs Spark is answered without it."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa

from kilonova.errors import CatalogUnavailable, InputError, SparkUnavailable
from kilonova.service.spark_operations import OperationFailed, SparkOperations

PLAN = {
    "workflow": "shop",
    "empty": False,
    "channels": [{"channel": "clicks", "action": "add", "detail": "append, 1 column"}],
    "tasks": [
        {
            "task": "per_user",
            "action": "change",
            "detail": "logic version 0 → 1: its query changed; migrated at the next run: removes rows; reads per_user",
            "logic": 1,
            "rows": 1200,
            "bytes": 3400,
            "downstream": [],
            "overruled": "",
            "diff": "--- per_user (registered)\n+++ per_user (declared)\n@@ -1 +1 @@\n-SELECT 1\n+SELECT <2>",
            "anew": True,
            "waits": ["clicks.page"],
            "migrated": True,
            "migration": "migrated at the next run: removes rows; reads per_user",
            "seconds": {"migration": 0.25, "full": 4.0},
        }
    ],
    "bindings": [],
    "bounds": [{"channel": "per_user", "path": [], "action": "add", "detail": "inconsistency of at most 1 hour"}],
    "unseen": [],
    "until": None,
    "discards": None,
    "affected": [
        {
            "channel": "busy",
            "task": "busy",
            "workflow": "other",
            "reads": "per_user",
            "effect": "breaks",
            "detail": "cannot run: it reads the column n, which per_user loses",
        }
    ],
    "incompatible": [{"channel": "per_user", "task": "late", "detail": "the task late requires the column m"}],
    "digest": "0123456789abcdef",
}

RETRACTION = {
    "touched": [{"channel": "per_user", "points": [1, 2], "newest": True}],
    "steps": {"per_user": "a new logic version migrates or recomputes its output"},
    "plan": PLAN,
}
PREVIEW = {
    "plans": [PLAN],
    "channels": [
        {
            "channel": "per_user",
            "before": 3,
            "after": 2,
            "added": 1,
            "removed": 2,
            "columns": ["adds m bigint"],
            "examples": [
                {"sign": "-", "row": {"user": "<ann>", "n": 1}},
                {"sign": "+", "row": {"user": "<ann>", "n": 2}},
                {"sign": "-", "row": {"user": "bob", "n": None}},
            ],
            "key": ["user"],
            "changed": 1,
            "differing": {"n": 1},
        }
    ],
    "wrong": [{"channel": "per_user", "rows": 1}],
    "verified": ["per_user"],
    "sample": [{"channel": "clicks", "by": ["user"], "rows": 10, "of": 1000}],
    "failed": [{"binding": "busy", "problem": "the column n is gone"}],
}


class Prompt(SparkOperations):
    """Does operations at once: a page is two rows, a run is the third, and what is nowhere cannot be read."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.sent: list[bytes] = []

    @property
    def name(self) -> str:
        return "gauss-4711"

    @property
    def impediment(self) -> SparkUnavailable | CatalogUnavailable | None:
        return None

    def operation(self, what: str, **arguments: Any) -> Future[Any]:
        self.asked.append((what, arguments))
        answer: Future[Any] = Future()
        answer.set_running_or_notify_cancel()
        match what:
            case "page":
                table = pa.table({"user": ["ann", "bob"]})
                with pa.OSFile(arguments["file"], "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table)
                answer.set_result([7, arguments["file"]])
            case "ingest" if "nowhere" in arguments["source"]:
                answer.set_exception(OperationFailed.by(InputError("there is no such file")))
            case "ingest":
                if Path(arguments["source"]).is_file():
                    self.sent.append(Path(arguments["source"]).read_bytes())
                answer.set_result({"run": 3, "repeated": False})
            case "repair":
                answer.set_result({"blocks": 0, "mended": [], "left": []})
            case "apply" | "rollback":
                answer.set_result([PLAN])
            case "retract":
                answer.set_result(RETRACTION)
            case "preview":
                answer.set_result(PREVIEW)
            case _:
                answer.set_result(3)
        return answer


class Slow(SparkOperations):
    """Has no worker for anything yet."""

    def __init__(self) -> None:
        self.waiting: list[Future[Any]] = []
        self.unwanted: list[Future[Any]] = []
        self.does: str | None = None

    @property
    def impediment(self) -> SparkUnavailable | CatalogUnavailable | None:
        return SparkUnavailable("no worker is ready")

    def operation(self, what: str, **arguments: Any) -> Future[Any]:
        self.waiting.append(Future())
        return self.waiting[-1]

    def cancel(self, outcome: Future[Any]) -> None:
        self.unwanted.append(outcome)

    def progress(self, outcome: Future[Any]) -> str | None:
        return self.does

    def before(self, outcome: Future[Any]) -> int:
        return 1 + self.waiting.index(outcome)
