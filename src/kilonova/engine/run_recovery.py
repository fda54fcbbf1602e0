"""Recovery of the runs of crashed processes, and deletion of blocks that were marked for it.

Deletion is idempotent: if a process crashes before it has recorded one, the next process deletes the files again.
"""

from __future__ import annotations

from kilonova.catalog import channel_store, runs
from kilonova.catalog.database import Catalog, Transaction
from kilonova.engine.interfaces import BlockStore
from kilonova.engine.run_events import Listener, RunRecovered

AT_ONCE = 2_000
"""Maximum number of blocks that change their state in one transaction, which blocks other writers."""


def any_left(tx: Transaction) -> bool:
    """Return whether there is anything for `recover_expired_runs` to do."""
    return runs.any_expired(tx) or bool(channel_store.marked_for_deletion(tx))


def recover_expired_runs(catalog: Catalog, files: BlockStore, listener: Listener) -> None:
    """Abandon the runs whose leases have expired, so that their tasks are due again, and delete their files."""
    expire_runs(catalog, listener)
    delete_doomed_blocks(catalog, files)


def expire_runs(catalog: Catalog, listener: Listener) -> None:
    """Abandon the runs whose leases have expired, and notify the listener of each."""
    with catalog.reading() as tx:
        if not runs.any_expired(tx):
            return
    with catalog.writing() as tx:
        silent = runs.expire(tx)
    for run in silent:
        listener(RunRecovered(run=run.number, tasks=run.tasks))


def delete_doomed_blocks(catalog: Catalog, files: BlockStore) -> tuple[int, Exception | None]:
    """Delete the files of blocks marked for deletion; a failure to delete some does not stop the others.

    Returns:
        The number of blocks whose files were deleted, and the first error; the others stay marked for deletion.
    """
    with catalog.reading() as tx:
        doomed = channel_store.marked_for_deletion(tx)
    deleted: list[int] = []
    first: Exception | None = None
    for name in doomed:
        try:
            files.delete([name])
            deleted.append(name.number)
        except Exception as error:  # of the file system, or of a Spark session that has died
            first = first or error
    for begin in range(0, len(deleted), AT_ONCE):
        with catalog.writing() as tx:
            channel_store.mark_deleted(tx, deleted[begin : begin + AT_ONCE])
    return len(deleted), first
