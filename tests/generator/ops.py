"""What generated tasks do, on the records that their ports are fed.

An operation depends on what a port *means* alone, not on which of several equal deltas it is fed: weak deltas are
passed on as they are or read as changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kilonova.model.task import Mode, Production


@dataclass(frozen=True)
class PortSpec:
    """A parameter: which input it reads, None for the first output, and how."""

    name: str
    of: int | None
    mode: Mode


@dataclass(frozen=True)
class Way:
    """One way to do an operation, with what it writes to each output."""

    function: Callable[..., Any]
    productions: tuple[Production, ...]
    ports: tuple[PortSpec, ...]


@dataclass(frozen=True)
class Operation:
    """An operation.

    Attributes:
        variants: the ways to do it.
        inputs: the kinds of channels that each input may have.
        outputs: the kinds that each output may have, given those of the inputs.
    """

    variants: tuple[Way, ...]
    inputs: tuple[tuple[str, ...], ...]
    outputs: Callable[..., tuple[tuple[str, ...], ...]]

    def adds(self, output: int) -> bool:
        """Whether it never replaces what is in an output, nor reads it."""
        methods = self.variants
        deltas = all(method.productions[output] is Production.DELTA for method in methods)
        return deltas and all(port.of is not None for method in methods for port in method.ports)


def _rows(records, drop=("_weight", "_deleted", "_set")):  # type: ignore[no-untyped-def]
    return [{name: value for name, value in record.items() if name not in drop} for record in records]


def copy(constant, a):  # type: ignore[no-untyped-def]
    return (a,)


def above(constant, a):  # type: ignore[no-untyped-def]
    return ([row for row in a if (row["v"] or 0) >= constant],)


def raising(constant, a):  # type: ignore[no-untyped-def]
    if any(row["v"] == 5 for row in a):
        raise ValueError("five")
    return (a,)


def lookup(constant, a, b):  # type: ignore[no-untyped-def]
    known = {row["k"] for row in b}
    return ([row for row in a if row["k"] in known],)


def unknown(constant, a, b):  # type: ignore[no-untyped-def]
    known = {row["k"] for row in b}
    return ([row for row in a if row["k"] not in known],)


def unseen(constant, a, out):  # type: ignore[no-untyped-def]
    known, first = {row["k"] for row in out}, {}
    for row in sorted(a, key=repr):
        if row["k"] not in known:
            first.setdefault(row["k"], row)
    return (list(first.values()),)


def heard(constant, a, out, out_old):  # type: ignore[no-untyped-def]
    """Says of each row how many rows the task has written since it last read them, and before."""
    said = 10 * sum(row.get("_weight") or 1 for row in out) + len(out_old) + constant
    rows = {row["k"]: row | {"v": said, "_weight": 1} for row in sorted(a, key=repr) if row["k"] is not None}
    return (list(rows.values()),)


def sums(constant, a):  # type: ignore[no-untyped-def]
    amounts, counts = Counter(), Counter()  # type: ignore[var-annotated]
    for row in a:
        if row["k"] is not None:
            amounts[row["k"]] += row["_weight"] * (row["v"] or 0)
            counts[row["k"]] += row["_weight"]
    return ([{"k": key, "v": amounts[key], "n": counts[key]} for key in counts],)


def split(constant, a):  # type: ignore[no-untyped-def]
    low = [row for row in a if (row["v"] or 0) <= constant]
    return low, [row for row in a if row not in low]


def patched(constant, a):  # type: ignore[no-untyped-def]
    now = {row["k"]: row for row in a if row["_weight"] > 0}
    gone = [{"k": row["k"], "_deleted": True} for row in a if row["_weight"] < 0 and row["k"] not in now]
    return ([*gone, *({"k": key, "v": row["v"], "_set": ("v",)} for key, row in now.items())],)


def revised(constant, a, a_old):  # type: ignore[no-untyped-def]
    names = sorted({name for row in (*a, *a_old) for name in row} - {"_weight"})
    weights = Counter()  # type: ignore[var-annotated]
    for row in a_old:
        weights[tuple(row[name] for name in names)] += 1
    for row in a:
        weights[tuple(row[name] for name in names)] += row["_weight"]
    return ([dict(zip(names, row, strict=True)) for row in weights.elements()],)


def noted(constant, a, a_old):  # type: ignore[no-untyped-def]
    return a, *revised(constant, a, a_old)


def tabled(constant, a, b):  # type: ignore[no-untyped-def]
    return b, *lookup(constant, a, b)


def forked(constant, a, a_all):  # type: ignore[no-untyped-def]
    return a, *above(constant, a_all)


def forked_again(constant, a_all):  # type: ignore[no-untyped-def]
    return forked(constant, a_all, a_all)


def joined(constant, a, b, a_old, b_old):  # type: ignore[no-untyped-def]
    """Rows of equal keys: what joins by a change is Δa ⋈ b before + a after ⋈ Δb."""
    pairs = [(x, y) for x in a for y in b_old] + [(x, y) for x in (*a_old, *a) for y in b]
    weights = Counter()  # type: ignore[var-annotated]
    for x, y in pairs:
        if x["k"] is not None and x["k"] == y["k"]:
            row = {**x, "v": (x["v"] or 0) + (y["v"] or 0)}
            weight = row.pop("_weight", 1) * y.get("_weight", 1)
            weights[tuple(sorted(row.items()))] += weight
    return ([{**dict(row), "_weight": weight} for row, weight in weights.items() if weight],)


def joined_again(constant, a, b):  # type: ignore[no-untyped-def]
    (made,) = joined(constant, a, [], [], b)
    return ([row for row in made for _ in range(row["_weight"])],)


def plain(constant, a):  # type: ignore[no-untyped-def]
    return (_rows(a),)


NEW, ALL, OLD, CHANGES, INSERTS = Mode.NEW, Mode.ALL, Mode.OLD, Mode.CHANGES, Mode.INSERTS
BASE, DELTA = Production.BASE, Production.DELTA

ANY = ("append", "upsert", "changes", "keyed", "increment", "columns", "stock", "peak")
ROWS = ("append", "upsert", "changes", "keyed", "columns")
UNIQUE = ("upsert", "keyed", "columns")


def _method(function: Callable[..., Any], *productions: Production, **ports: Mode) -> Way:
    of = {"a": 0, "a_old": 0, "a_all": 0, "b": 1, "b_old": 1, "out": None, "out_old": None}
    return Way(function, productions, tuple(PortSpec(name, of[name], mode) for name, mode in ports.items()))


def _strong(kind: str) -> tuple[tuple[str, ...], ...]:
    return (("changes", "keyed") if kind in UNIQUE else ("changes",),)


def _same(kind: str) -> tuple[tuple[str, ...], ...]:
    return ((kind,),)


OPS: dict[str, Operation] = {
    "copy": Operation((_method(copy, DELTA, a=NEW),), (ANY[:-1],), _same),
    "whole": Operation(
        (_method(copy, BASE, a=ALL),),
        (ROWS,),
        lambda kind: (("append", "changes", *(UNIQUE if kind in UNIQUE else ())),),
    ),
    "weights": Operation((_method(copy, DELTA, a=CHANGES),), (ROWS,), _strong),
    "sums": Operation((_method(sums, DELTA, a=CHANGES),), (ROWS,), lambda _: (("increment",),)),
    "above": Operation((_method(above, DELTA, a=NEW),), (("append", "changes"),), _same),
    "raising": Operation((_method(raising, DELTA, a=NEW),), (("append", "upsert"),), _same),
    "lookup": Operation((_method(lookup, DELTA, a=NEW, b=ALL),), (("append",), ANY), lambda *_: (("append",),)),
    "unknown": Operation(
        (_method(unknown, BASE, a=NEW, b=ALL),), (("append",), ANY), lambda *_: (("append", "changes"),)
    ),
    "unseen": Operation((_method(unseen, DELTA, a=NEW, out=ALL),), (("append",),), lambda _: (("append",),)),
    "heard": Operation(
        (_method(heard, DELTA, a=NEW, out=NEW, out_old=OLD),), (("append",),), lambda _: (("append", "changes"),)
    ),
    "heard inserts": Operation(
        (_method(heard, DELTA, a=NEW, out=INSERTS, out_old=OLD),), (("append",),), lambda _: (("append", "changes"),)
    ),
    "heard changes": Operation(
        (_method(heard, DELTA, a=NEW, out=CHANGES, out_old=OLD),), (("append",),), lambda _: (("append", "upsert"),)
    ),
    "split": Operation((_method(split, DELTA, DELTA, a=CHANGES),), (ROWS,), lambda _: (("changes",), ("changes",))),
    "inserts": Operation(
        (_method(copy, DELTA, a=INSERTS), _method(copy, BASE, a=ALL)), (ROWS,), lambda _: (("append", "changes"),)
    ),
    "patched": Operation((_method(patched, DELTA, a=CHANGES),), (UNIQUE,), lambda _: (("columns",),)),
    "revised": Operation((_method(revised, BASE, a=CHANGES, a_old=OLD),), (ROWS,), lambda _: (("append", "changes"),)),
    "noted": Operation(
        (_method(noted, DELTA, BASE, a=CHANGES, a_old=OLD),), (ROWS,), lambda _: (("changes",), ("append", "changes"))
    ),
    "tabled": Operation(
        (_method(tabled, BASE, DELTA, a=NEW, b=ALL),),
        (("append",), ROWS),
        lambda _, kind: (("changes", *(UNIQUE if kind in UNIQUE else ())), ("append",)),
    ),
    "forked": Operation(
        (_method(forked, DELTA, BASE, a=INSERTS, a_all=ALL), _method(forked_again, BASE, BASE, a_all=ALL)),
        (ROWS,),
        lambda _: (("append", "changes"), ("append", "changes")),
    ),
    "joined": Operation(
        (
            _method(joined, DELTA, a=CHANGES, b=CHANGES, a_old=OLD, b_old=OLD),
            _method(joined_again, BASE, a=ALL, b=ALL),
        ),
        (ROWS, ROWS),
        lambda *_: (("changes",),),
    ),
    "latest": Operation((_method(plain, DELTA, a=NEW),), (("append",),), lambda _: (("upsert",),)),
}
