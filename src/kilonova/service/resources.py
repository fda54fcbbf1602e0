"""Resources of a project: catalog, warehouse, Spark session and pins, opened when first used."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kilonova.catalog import registry
from kilonova.catalog.database import Catalog
from kilonova.engine.interfaces import BlockStore
from kilonova.engine.run_events import Listener
from kilonova.engine.run_protocol import RunEnvironment
from kilonova.engine.run_recovery import recover_expired_runs
from kilonova.errors import SettingsError
from kilonova.schedule.layout import LayoutThresholds
from kilonova.service.pins import Pins
from kilonova.service.settings import FILE, Settings, catalog_url, warehouse_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kilonova.service.recovery import Recovery
    from kilonova.warehouse.storage import Storage
    from kilonova.warehouse.warehouse import Warehouse

_PINNED = timedelta(minutes=10)
"""Minimum retention of blocks that a process was reading when it died."""


class ProjectResources:
    """Resources that the parts of a project share.

    Args:
        settings: the settings.
        directory: the directory to which relative paths refer.
        listener: receives the notifications of runs.
        session: the Spark session to use; None to start one when needed.
    """

    def __init__(self, settings: Settings, directory: Path, listener: Listener, session: SparkSession | None) -> None:
        self.settings = settings
        self.directory = directory
        self.listener = listener
        self.lease = timedelta(seconds=settings.run_lease)
        self.catalog = Catalog(catalog_url(settings, directory))
        self.pins = Pins(self.catalog, max(_PINNED, self.lease))
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:6]}"
        self._spark = session
        self._opened = False
        self._warehouse: Warehouse | None = None
        self._verified: Storage | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Stop the Spark session, if this project started it, and release the catalog and all pins."""
        self.pins.close()
        if self._opened and self._spark is not None:
            self._spark.stop()
        self._spark, self._warehouse, self._opened = None, None, False
        self.catalog.close()

    def prepare_next_start(self) -> None:
        """Create the class data archive that speeds up the next start of Spark, if a session was started here.

        It is created once per machine and release, by a background process of its own.
        """
        if self._opened and self.settings.spark.class_data_archive and self.settings.spark.remote is None:
            from kilonova.jvm.cds_archive import make_in_background

            make_in_background()

    def create(self) -> None:
        """Create the catalog and the warehouse, or upgrade an older catalog to this release.

        Raises:
            CatalogError: the catalog was created by a newer release, or cannot be reached; or the warehouse belongs to
                another catalog.
        """
        from kilonova.service.ownership import check_owner

        storage = self._unverified_storage()
        if self.catalog.revision() is None:
            check_owner(storage)
        self.catalog.create()
        storage.create()
        self.storage()

    def recover(self, progress: Callable[[int, int], None] = lambda done, total: None) -> Recovery:
        """Recover the catalog, a new one if there is none, from the blocks of its warehouse.

        Nothing in the warehouse is changed or deleted except its recorded owner. Tasks start from scratch at their next
        run; in a new catalog, they exist once their workflows are applied.

        Args:
            progress: called with the number of blocks inspected, and the number of all.

        Returns:
            The recovered channels and blocks, and those that were not recovered, with the reasons.

        Raises:
            Conflict: a run is in progress.
            CatalogError: the catalog has blocks of another warehouse, or the owner of the blocks is ambiguous.
            StorageFailed: the warehouse cannot be read, or written.
        """
        from kilonova.service.recovery import recover

        self.catalog.create()
        storage = self._unverified_storage()
        storage.create()
        done = recover(self.catalog, storage, progress)
        self._verified = None
        return done

    @property
    def warehouse(self) -> Warehouse:
        """Warehouse, with a Spark session that is started on first use."""
        from kilonova.warehouse.pickled_functions import pickled_functions
        from kilonova.warehouse.session import SparkSettings, open_session
        from kilonova.warehouse.warehouse import Warehouse

        storage = self.storage()
        with self._lock:
            if self._warehouse is None:
                section = self.settings.spark
                if self._spark is None:
                    try:
                        wanted = SparkSettings(
                            master=section.master,
                            remote=section.remote,
                            conf=tuple(section.conf.items()),
                            class_data_archive=section.class_data_archive,
                        )
                    except ValueError as error:
                        raise SettingsError(str(error), path=FILE, hint="See the page on settings") from None
                    self._spark, self._opened = open_session(wanted)

                def functions(name: str) -> Any:
                    with self.catalog.reading() as tx:
                        return pickled_functions(registry.function(tx, name).pickled)

                self._warehouse = Warehouse(
                    self._spark,
                    storage,
                    self.catalog.identity(),
                    functions,
                    LayoutThresholds(**self.settings.sizes.model_dump()),
                    checksums=self.settings.verify == "checksums",
                )
            return self._warehouse

    def warm(self) -> None:
        """Start Spark and run a small job, so that the next operation does not wait for the start."""
        self.warehouse.spark.range(1).count()

    def recover_expired_runs(self) -> None:
        """Expire the runs whose processes went silent: the points that they reserved hide later ones."""
        recover_expired_runs(self.catalog, self.block_store(), self.listener)

    def block_store(self, catalog: Catalog | None = None) -> BlockStore:
        """Return the block store of the warehouse, which can delete files without Spark.

        Args:
            catalog: the catalog to read; None for the project's own.
        """
        return self._warehouse or self.storage(catalog)

    def storage(self, catalog: Catalog | None = None) -> Storage:
        """Return the storage of the warehouse; its ownership by this catalog is checked once.

        Args:
            catalog: the catalog to read; None for the project's own.

        Raises:
            CatalogError: it belongs to another catalog.
        """
        from kilonova.service.ownership import verify

        if self._verified is None:
            storage = self._unverified_storage()
            verify(catalog or self.catalog, storage)
            self._verified = storage
        return self._verified

    def _unverified_storage(self) -> Storage:
        from kilonova.warehouse.storage import Storage

        return Storage(warehouse_url(self.settings, self.directory))

    def environment(self, listener: Listener | None = None) -> RunEnvironment:
        """Return the environment of runs of this process, with another listener than the project's if one is given."""
        warehouse = self.warehouse
        return RunEnvironment(
            catalog=self.catalog,
            files=warehouse,
            counting=warehouse.counting,
            owner=self.owner,
            lease=self.lease,
            listener=listener or self.listener,
        )
