"""Operations that need Spark, done by a worker process: the interface between a server's loop and its HTTP API."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from kilonova.errors import CatalogUnavailable, KilonovaError, SparkUnavailable, is_transient


class OperationFailed(Exception):
    """An operation that failed.

    Args:
        content: the error as `KilonovaError.to_dict()` returns it.
        passing: whether the error is transient, so that a retry may succeed.
    """

    def __init__(self, content: Mapping[str, Any], passing: bool) -> None:
        super().__init__(content["problem"])
        self.content = content
        self.passing = passing

    @classmethod
    def by(cls, error: KilonovaError) -> OperationFailed:
        """Convert an error of this process."""
        return cls(error.to_dict(), is_transient(error))


class SparkOperations(Protocol):
    """Queue of operations for workers."""

    @property
    def name(self) -> str:
        """The server's registered name; empty until it has started."""

    @property
    def impediment(self) -> SparkUnavailable | CatalogUnavailable | None:
        """The error that keeps the server from working: no worker, or an unwritable catalog; None if there is none."""

    def before(self, outcome: Future[Any]) -> int:
        """Return how many runs and operations workers have to end before one of them can begin an operation.

        Firings that no worker has begun are not counted, nor are runs for which the operation does not wait.

        Args:
            outcome: the future of an operation that waits for a worker.
        """

    def progress(self, outcome: Future[Any]) -> str | None:
        """Return what a worker does for an operation now, as text for users; None if it has not said.

        Args:
            outcome: the future of an operation.
        """

    def cancel(self, outcome: Future[Any]) -> None:
        """Cancel an operation that a worker has begun: the worker is killed, unless the operation ends before.

        Args:
            outcome: the future of an operation.
        """

    def operation(self, what: str, **arguments: Any) -> Future[Any]:
        """Enqueue an operation that needs Spark, to be done by a worker.

        It takes precedence over firings, and an ingest, an apply, a rollback, a retraction or a page does not wait for
        runs, unless `serve.extra_worker` is false; but pages come after firings, occupy all workers but one at most
        where there are several, and are refused if they have waited for too long: read-only clients delay nothing.

        Args:
            what: the operation: `run`, `ingest`, `compact`, `repair`, `export`, `page`, `apply`,
                `rollback`, `retract` or `preview`.
            arguments: the arguments of the method of `Project`.

        Returns:
            A future of the result: a run's number, a page, plans, a report or a preview; or `OperationFailed`.
        """
