"""Branches: copies of a project whose blocks are shared by reference, to try changes without touching the project."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import select

from kilonova.catalog import pins, tables
from kilonova.catalog.branching import copy_state
from kilonova.catalog.database import Catalog
from kilonova.service.resources import ProjectResources
from kilonova.service.temporary_files import remove_abandoned, temporary_directory
from kilonova.warehouse.storage import BranchStorage, Storage


class _BranchResources(ProjectResources):
    """Resources of a branch: those of its project, with a catalog and a storage of its own."""

    def __init__(self, origin: ProjectResources, catalog: Path, storage: BranchStorage) -> None:
        settings = origin.settings.model_copy(update={"catalog": str(catalog), "lineage": None})
        super().__init__(settings, catalog.parent, origin.listener, origin.warehouse.spark)
        self._storage = storage

    def storage(self, catalog: Catalog | None = None) -> Storage:
        """Return the storage of the branch."""
        return self._storage


@contextmanager
def branch(origin: ProjectResources) -> Iterator[ProjectResources]:
    """Open a branch of a project, which has its channels, tasks and rows, until the end of the `with` block.

    What the branch writes is deleted then; the project is not changed. Its blocks are pinned meanwhile. If the process
    is killed, garbage collection deletes what the branch has written.

    Args:
        origin: the resources of the project, or of a branch.

    Raises:
        StorageFailed: the warehouse cannot be written.
    """
    remove_abandoned()
    name = secrets.token_hex(6)
    with temporary_directory() as place:
        catalog = Catalog(f"sqlite:///{place}/catalog.db")
        catalog.create()
        live = select(tables.placement.c.block_id).where(tables.placement.c.live).distinct()
        with origin.catalog.writing() as tx:
            holder = origin.pins.pin(tx, tx.connection.execute(live).scalars(), pins.holder_of_branch(name))
        origin.pins.hold(holder)
        try:
            with origin.catalog.reading() as tx, catalog.writing() as own:
                until = copy_state(tx, own)
            catalog.close()
            storage = BranchStorage(origin.storage(), name, until)
            storage.create()
            resources = _BranchResources(origin, Path(place) / "catalog.db", storage)
            try:
                yield resources
            finally:
                resources.close()
                storage.remove()
        finally:
            origin.pins.release(holder)
