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
    "tasks": [],
    "bindings": [],
    "unseen": [],
    "until": None,
    "discards": None,
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
            case "apply":
                answer.set_result([PLAN])
            case _:
                answer.set_result(3)
        return answer


class Slow(SparkOperations):
    """Has no worker for anything yet."""

    def __init__(self) -> None:
        self.waiting: list[Future[Any]] = []

    @property
    def impediment(self) -> SparkUnavailable | CatalogUnavailable | None:
        return SparkUnavailable("no worker is ready")

    def operation(self, what: str, **arguments: Any) -> Future[Any]:
        self.waiting.append(Future())
        return self.waiting[-1]

    def before(self, outcome: Future[Any]) -> int:
        return 1 + self.waiting.index(outcome)
