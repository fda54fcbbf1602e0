"""Ownership of a warehouse: the one catalog that knows its blocks.

A file in the warehouse names that catalog by its identity, and the catalogs from which it was recovered. A catalog
that the file does not name neither writes nor reads there, so that two catalogs never collect each other's blocks as
garbage, nor use one point for two different states.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import select

from kilonova.catalog import tables
from kilonova.catalog.database import Catalog
from kilonova.errors import CatalogError, StorageFailed
from kilonova.warehouse.storage import Storage

FORMAT = 1

_HINT = "Give the catalog that belongs to it, or another warehouse; if that catalog is lost: kilonova recover"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseOwner:
    """Identity of the catalog that owns a warehouse, and of those it was recovered from, whose blocks it owns too."""

    catalog: str
    earlier: tuple[str, ...] = ()


def owner_to_text(owner: WarehouseOwner) -> str:
    """Return the text of the file that names an owner.

    >>> print(owner_to_text(WarehouseOwner(catalog="c0ffee")), end="")
    {"format": 1, "catalog": "c0ffee", "earlier": []}
    """
    return json.dumps({"format": FORMAT, "catalog": owner.catalog, "earlier": list(owner.earlier)}) + "\n"


def owner_of(storage: Storage) -> WarehouseOwner | None:
    """Return the owner that a warehouse names; None if it names none.

    Raises:
        CatalogError: the file that names it is damaged, or of a newer release.
        StorageFailed: it cannot be read.
    """
    text = storage.owner()
    if text is None:
        return None
    try:
        value = json.loads(text)
        if value["format"] != FORMAT:
            raise CatalogError(
                f"the warehouse names its catalog in the unknown format {value['format']}",
                path=storage.url,
                hint="Upgrade Kilonova",
            )
        return WarehouseOwner(catalog=value["catalog"], earlier=tuple(value["earlier"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CatalogError(
            f"the file that names the warehouse's catalog cannot be read: {error}",
            path=storage.url,
            hint="If no other catalog uses the warehouse, delete its _catalog.json",
        ) from error


def check_owner(storage: Storage) -> None:
    """Check that a warehouse has no owner and no blocks, before a new catalog is created for it.

    Raises:
        CatalogError: the warehouse belongs to a catalog, or has blocks.
    """
    if (owner := owner_of(storage)) is not None:
        raise CatalogError(f"the warehouse belongs to another catalog, {owner.catalog}", path=storage.url, hint=_HINT)
    _refuse_blocks(storage)


def _refuse_blocks(storage: Storage) -> None:
    if storage.blocks():
        raise CatalogError("the warehouse has blocks of another catalog", path=storage.url, hint=_HINT)


def verify(catalog: Catalog, storage: Storage) -> None:
    """Check that a catalog owns a warehouse; claim a warehouse without an owner, if its blocks can be this catalog's.

    Raises:
        CatalogError: the warehouse belongs to another catalog, or has blocks and this catalog has none.
    """
    with catalog.reading() as tx:
        identity = tx.identity()
        known = tx.connection.execute(
            select(tables.placement.c.block_id).where(tables.placement.c.live).limit(1)
        ).first()
    owner = owner_of(storage)
    if owner is None:
        if known is None:
            _refuse_blocks(storage)
        with suppress(StorageFailed):  # a read-only warehouse has no owner yet
            storage.claim(owner_to_text(WarehouseOwner(catalog=identity)))
        owner = owner_of(storage)
    if owner is not None and owner.catalog != identity:
        raise CatalogError(
            f"the warehouse belongs to the catalog {owner.catalog}, and this is {identity}",
            path=storage.url,
            hint=_HINT,
        )
