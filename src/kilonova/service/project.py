"""Project: one catalog and one warehouse, with all operations on them.

Operations that need Spark start a session when first called, and `close` ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kilonova.engine.run_events import Listener, no_listener
from kilonova.service.commands import ProjectOperator
from kilonova.service.ingests import Ingests
from kilonova.service.queries import ProjectReader
from kilonova.service.registration import Registration
from kilonova.service.resources import ProjectResources
from kilonova.service.retraction import Retractions
from kilonova.service.row_reader import RowReader
from kilonova.service.runner import Runner
from kilonova.service.settings import load_settings
from kilonova.service.storage_maintenance import StorageMaintenance
from kilonova.service.watched_directories import WatchedDirectories

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kilonova.declare.workflow import Declared, Workflow
    from kilonova.model.sample import RowSample
    from kilonova.service.preview import Preview
    from kilonova.warehouse.warehouse import Warehouse


class Project:
    """Project of a catalog and a warehouse.

    It is composed of parts, by the kind of operation; the operations that users need most are also methods of the
    project itself, such as `project.run()` for `project.runner.run()`.

    Args:
        resources: the catalog, warehouse, Spark session and settings.

    Attributes:
        resources: the same.
        reader: shows the state that is recorded in the catalog.
        operator: changes it, such as by pausing bindings or retrying runs.
        registration: plans and applies workflows, and drops channels.
        ingests: inserts files and DataFrames into source channels.
        directories: scans watched directories, and inserts their files.
        runner: runs tasks.
        row_reader: reads the rows of channels, and the logs of runs.
        maintenance: compacts channels, and deletes, verifies and repairs blocks.
    """

    def __init__(self, resources: ProjectResources) -> None:
        self.resources = resources
        self.settings, self.directory, self.catalog = resources.settings, resources.directory, resources.catalog
        self.reader = ProjectReader(resources.catalog)
        self.operator = ProjectOperator(resources.catalog, resources.settings)
        self.row_reader = RowReader(resources)
        self.registration = Registration(resources, self.row_reader)
        self.ingests = Ingests(resources)
        self.directories = WatchedDirectories(resources)
        self.runner = Runner(resources, self.reader)
        self.maintenance = StorageMaintenance(resources, self.runner)

        self.create, self.recover, self.close = resources.create, resources.recover, resources.close
        self.plan, self.plan_all = self.registration.plan, self.registration.plan_all
        self.apply, self.apply_all = self.registration.apply, self.registration.apply_all
        self.drop, self.rollback = self.registration.drop, self.registration.rollback
        self.retract = Retractions(resources.catalog, self.registration).retract
        self.ingest = self.ingests.ingest
        self.run, self.run_each = self.runner.run, self.runner.run_each
        self.read, self.rows, self.export = self.row_reader.read, self.row_reader.rows, self.row_reader.export
        self.log = self.row_reader.log
        self.compact, self.fsck = self.maintenance.compact, self.maintenance.fsck
        self.collect_garbage = self.maintenance.collect_garbage
        self.status, self.due, self.explain = self.reader.status, self.reader.due, self.reader.explain
        self.versions, self.bounds = self.reader.versions, self.reader.bounds
        self.bound_schedule = self.reader.bound_schedule
        self.runs, self.run_detail, self.events = self.reader.runs, self.reader.run_detail, self.reader.events
        self.fire, self.pause, self.resume = self.operator.fire, self.operator.pause, self.operator.resume
        self.set_bound, self.remove_bound = self.operator.set_bound, self.operator.remove_bound
        self.reset_bound = self.operator.reset_bound
        self.cancel, self.retry_run = self.operator.cancel, self.operator.retry_run

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def preview(
        self,
        workflows: Sequence[Workflow | Declared],
        *,
        examples: int = 5,
        verify: bool = False,
        sample: RowSample | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Preview:
        """Return what registering workflows would change in the rows; see `kilonova.service.preview.preview`."""
        from kilonova.service.preview import preview

        return preview(self.resources, workflows, examples=examples, verify=verify, sample=sample, progress=progress)

    @property
    def warehouse(self) -> Warehouse:
        """Warehouse, with a Spark session that is started on first use."""
        return self.resources.warehouse


def open_project(
    directory: str | Path = ".",
    *,
    listener: Listener = no_listener,
    session: SparkSession | None = None,
    **settings: Any,
) -> Project:
    """Open the project of a directory.

    Args:
        directory: the directory of `kilonova.toml`, if there is one, to which paths in it are relative.
        listener: receives the notifications of runs.
        session: the Spark session to use; without it, one is started when needed.
        settings: settings that override the file's and the environment's; see `Settings`.

    Raises:
        SettingsError: a setting is unknown or has an invalid value.
    """
    place = Path(directory)
    return Project(ProjectResources(load_settings(place, **settings), place, listener, session))
