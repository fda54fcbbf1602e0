"""Pins of blocks in the catalog, which keep them from garbage collection until they expire."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta

from sqlalchemy import bindparam, delete, select, update

from kilonova.catalog import codec, tables
from kilonova.catalog.database import Transaction, insert_all


def holder_of(run: int | str) -> str:
    """Return the name under which a run pins blocks."""
    return f"run {run}"


def holder_of_branch(name: str) -> str:
    """Return the name under which a branch pins blocks of its project."""
    return f"branch {name}"


def pin(tx: Transaction, holder: str, blocks: Iterable[int], duration: timedelta) -> None:
    """Protect blocks from garbage collection while they are read, in addition to those already pinned by the holder.

    Args:
        tx: the writing transaction in which the blocks were found live.
        holder: the reader.
        blocks: their numbers.
        duration: the time until the pins expire.
    """
    mine = tables.pin.c.holder == holder
    held = tx.connection.execute(select(tables.pin.c.blocks).where(mine)).scalar()
    if held is None:
        add_pins(tx, {holder: set(blocks)}, duration)
        return
    values = {"blocks": codec.numbers_to_json({*blocks, *codec.numbers_from_json(held)}), "until": tx.now + duration}
    tx.connection.execute(update(tables.pin).where(mine).values(**values))


def add_pins(tx: Transaction, blocks: Mapping[str, Collection[int]], duration: timedelta) -> None:
    """Pin blocks for holders without pins, given by holder; do nothing for those that need none."""
    rows = [{"holder": holder, "blocks": codec.numbers_to_json(some)} for holder, some in blocks.items() if some]
    insert_all(tx, tables.pin, [row | {"until": tx.now + duration} for row in rows])


def holders(tx: Transaction) -> set[str]:
    """Return the holders of pins that have not expired."""
    return set(tx.connection.execute(select(tables.pin.c.holder).where(tables.pin.c.until >= tx.now)).scalars())


def renew_pins(tx: Transaction, holders: Collection[str], duration: timedelta) -> None:
    """Renew the pins of the given holders."""
    tx.connection.execute(update(tables.pin).where(tables.pin.c.holder.in_(holders)).values(until=tx.now + duration))


_UNPIN = delete(tables.pin).where(tables.pin.c.holder == bindparam("given"))


def unpin(tx: Transaction, holder: str) -> None:
    """Release all pins of a holder."""
    tx.connection.execute(_UNPIN, {"given": holder})
