"""Random pairs of an old and a new query, executed by DuckDB: a migration must equal recomputation."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kilonova.errors import KilonovaError
from kilonova.model.encoding import Changes, Columns
from kilonova.query.join_ordering import without_hints
from kilonova.query.materialization import plan_materializations
from kilonova.query.materialized_relation import MaterializedRelation
from kilonova.query.migration.derivation import derive_migration
from kilonova.query.migration.migration import Migration, NoMigration
from kilonova.query.parsing import parse_query
from kilonova.query.properties import Known
from kilonova.query.redundant_weights import drop_redundant_weights
from kilonova.query.rendering import render
from kilonova.query.syntax import UnsupportedSql
from kilonova.query.tree import WEIGHT, Node, channels, names, scans
from tests.query.edits import Editor
from tests.query.generator import Generator
from tests.query.histories import KNOWN, TABLES, Bag, World, filled, row


def contents(draw: random.Random) -> dict[str, Bag]:
    """Rows of all tables; some of `r` and `g` occur twice."""
    found = {name: filled(draw, name) for name in TABLES}
    for name in ("r", "g"):
        found[name] += Counter({row(draw, name): 2})
    return found


def computed(world: World, node: Node) -> tuple[dict[str, str], Bag]:
    """The columns with their types, and the rows of a tree."""
    columns, kinds, rows = world.asked(render(node, lambda scan: f"{scan.channel}_new"))
    return dict(zip(columns, kinds, strict=True)), Counter(map(_hashable, rows))


def _hashable(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(tuple(each) if isinstance(each, list) else each for each in values)


def migrated(
    world: World, item: MaterializedRelation, migration: Migration, old: Bag, columns: dict[str, str], known: Known
) -> Bag:
    """The stored rows after a migration."""
    world.types[item.channel] = columns
    world.settled.discard(item.channel)
    world.put(item.channel, old, old)
    wanted, former = names(migration.tree), migration.renamed
    there = [former.get(name, name if name not in former.values() else None) for name in wanted]
    places = [list(columns).index(name) if name in columns else None for name in there]
    after: Counter[tuple[Any, ...]] = Counter()
    for values, n in old.items():
        after[tuple(None if place is None else values[place] for place in places)] += n
    if migration.delta is None:
        return after
    few = {name: replace(known[name], one_row=world.rows[name].total() <= 1) for name in channels(migration.delta)}
    delta = drop_redundant_weights(without_hints(migration.delta), few)
    given, _, rows = world.asked(render(delta, lambda scan: f"{scan.channel}_{scan.at.value}"))
    changes = [dict(zip(given, _hashable(values), strict=True)) for values in rows]
    match migration.encoding:
        case None:
            assert given == list(wanted), given
            return Counter(tuple(each[name] for name in wanted) for each in changes)
        case Changes():
            assert given == [*wanted, WEIGHT], given
            for each in changes:
                values = tuple(each[name] for name in wanted)
                assert each[WEIGHT] != 0
                after[values] += each[WEIGHT]
            assert all(count >= 0 for count in after.values()), "a row is removed that is not there"
            return +after
        case Columns(key):
            own = [wanted.index(name) for name in key]
            by_key = {tuple(values[place] for place in own): dict(zip(wanted, values, strict=True)) for values in after}
            assert len(by_key) == after.total()
            assert len({tuple(each[name] for name in key) for each in changes}) == len(changes), "a key occurs twice"
            assert set(given) - {"_deleted", "_set"} <= set(wanted)
            for each in changes:
                assert former.keys().isdisjoint(each.get("_set") or ()), "the values of a renamed column are written"
                place = tuple(each[name] for name in key)
                if each.get("_deleted"):
                    del by_key[place]
                    continue
                set_ = each.get("_set") or [name for name in given if name in wanted]
                if place not in by_key:
                    assert set(wanted) <= set(set_), "a key is set that is not there"
                    by_key[place] = {}
                by_key[place] |= {name: each[name] for name in set_}
            return Counter(tuple(each[name] for name in wanted) for each in by_key.values())


class QueryPair:
    """A view before and after a change of its query, and the migrations of the relations that it stores.

    Args:
        name: the view.
        old: its query before the change.
        new: its query after it.
        known: the channels.
        key: the key that the user declares.
    """

    def __init__(self, name: str, old: str, new: str, known: Known, key: tuple[str, ...] = ()) -> None:
        self._was = {item.channel: item for item in plan_materializations(name, parse_query(old, known), known, key)}
        self._now = plan_materializations(name, parse_query(new, known), known, key)
        self.others = tuple(item.channel for item in self._now if item.channel not in self._was)
        self.migrations: dict[str, Migration | NoMigration] = {}
        self._known = every = dict(known)
        for item in self._now:
            every[item.channel] = item.facts
            before = self._was.get(item.channel)
            if before is not None and before.tree != item.tree and before.whole is None is item.whole:
                if _can_read(before, every, self._was):
                    self.migrations[item.channel] = derive_migration(before.tree, item.tree, before, every)
                else:
                    self.migrations[item.channel] = NoMigration(reason="the relations that it reads are others")

    @property
    def migrates(self) -> bool:
        """Whether no relation is recomputed."""
        return not self.others and all(isinstance(each, Migration) for each in self.migrations.values())

    @property
    def from_output(self) -> bool:
        """Whether nothing is read but what is stored for the query."""
        found = self.migrations.items()
        return self.migrates and all(
            isinstance(each, Migration) and each.reads.keys() <= {channel} for channel, each in found
        )

    def check(self, worlds: Iterable[World]) -> None:
        """Check that the migrations equal recomputation.

        Raises:
            AssertionError: one does not.
        """
        if not any(isinstance(each, Migration) for each in self.migrations.values()):
            return
        for world in worlds:
            for item in self._now:
                types, expected = computed(world, item.tree)
                migration = self.migrations.get(item.channel)
                if isinstance(migration, Migration):
                    self._check(world, self._was[item.channel], migration, expected)
                world.types[item.channel] = types
                world.settled.discard(item.channel)
                world.put(item.channel, expected, expected)

    def _check(self, world: World, before: MaterializedRelation, migration: Migration | None, expected: Bag) -> None:
        types, rows = computed(world, before.tree)
        while migration is not None:
            after, right = computed(world, migration.tree)
            if (other := migration.by_reference) is not None:
                found = migrated(world, before, other, rows, types, self._known)
                assert found == right, "with renamed columns, the rows are not those of the new query"
                given = {name: types[old] for name, old in other.renamed.items()}
                assert given == {name: after[name] for name in given}
            rows = migrated(world, before, migration, rows, types, self._known)
            types = after
            assert rows == right, f"{rows - right} too many, {right - rows} too few"
            migration = migration.then
        assert rows == expected, f"{rows - expected} too many, {expected - rows} too few"


def _can_read(item: MaterializedRelation, known: Known, was: Mapping[str, MaterializedRelation]) -> bool:
    """Whether a relation of the old view can be computed from the relations of the new one."""
    for scan in scans(item.tree):
        facts = known.get(scan.channel)
        if facts is None or not all(source in facts.types for source, _ in scan.columns):
            return False
        if scan.channel in was and was[scan.channel].facts.key != facts.key:
            return False
    return True


def worlds(seed: int, count: int = 3) -> Iterator[World]:
    """Tables with random rows."""
    draw = random.Random(seed)
    for _ in range(count):
        world = World()
        world.step(contents(draw))
        yield world


TYPING_ERRORS = ("Binder Error", "Conversion Error", "No function")
"""Errors of DuckDB for queries that are no SQL."""


KEYED = [
    "select q1.k as c1, q1.a as c2, q1.v as c3 from t as q1 where q1.v > 0.5",
    "select q1.k as c1, q2.x as c2 from t as q1 left join u as q2 on q1.a = q2.k",
    "select q1.k as c1, q1.s as c2, q2.b as c3 from t as q1 join u as q2 on q1.a = q2.k where q2.x > 1 and q1.a < 3",
    "select q1.k as c1, max(q2.b) as c2, count(*) as c3 from t as q1 join u as q2 on q1.k = q2.x group by q1.k",
    "select q1.k as c1, sum(q2.b) as c2 from t as q1 left join u as q2 on q1.k = q2.x where q1.a > 0 group by q1.k",
    "select q1.k as c1, rank() over (partition by q1.a order by q1.k) as c2, q1.a as c3 from t as q1 where q1.a > 0",
    "select q1.k as c1, count(*) as c2 from t as q1 where q1.a in (select b from r where d > 0.5) group by q1.k",
    "select q1.k as c1, q1.a + 1 as c2 from t as q1 where exists (select 1 from u where u.x = q1.a and u.b > 1)",
    "select q1.k as c1, min(q1.v) as c2, sum(q1.a) as c3, avg(q1.a) as c4 from t as q1 where q1.v < 1.5 group by q1.k",
]
"""Queries of which the first column is a key."""


def random_pair(seed: int) -> tuple[QueryPair, str, tuple[str, ...]]:
    """A random change of a query, its text, and the kinds of edits in it.

    Raises:
        KilonovaError: an edit has made it no query.
        UnsupportedSql: or one that is only recomputed.
    """
    draw = random.Random(seed)
    editor = Editor(seed)
    key = ("c1",) if draw.random() < 0.25 else ()
    old = draw.choice(KEYED) if key else Generator(seed).query(depth=draw.choice([0, 1, 1, 2]))
    new, kinds = editor.edited(old, draw.choice([1, 1, 1, 2, 3]))
    try:
        return QueryPair("v", old, new, KNOWN, key), f"{old}\n{new}", kinds
    except (UnsupportedSql, KilonovaError):
        raise
    except Exception as error:
        raise AssertionError(f"{old}\n{new}") from error


if __name__ == "__main__":
    import sys
    import time
    import traceback

    first, count = int(sys.argv[1]), int(sys.argv[2])
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    began = time.monotonic()
    for seed in range(first, first + count):
        text, kinds = "", ()
        try:
            pair, text, kinds = random_pair(seed)
            pair.check(worlds(seed))
        except (UnsupportedSql, KilonovaError):
            outcomes["beyond"] += 1
            continue
        except Exception as error:
            if any(text in str(error) for text in TYPING_ERRORS):
                outcomes["not typed"] += 1
                if "-b" in sys.argv:
                    print(seed, str(error)[:300])
                continue
            outcomes["wrong"] += 1
            print(f"seed {seed}: {kinds}\n{text}\n   {type(error).__name__}: {str(error)[:600]}", flush=True)
            if "-v" in sys.argv:
                traceback.print_exc()
            continue
        for each in pair.migrations.values():
            if isinstance(each, NoMigration):
                outcomes["none"] += 1
                reasons[each.reason] += 1
                if "-r" in sys.argv:
                    print(f"{each.reason}\n{text}")
            else:
                outcomes["then" if each.then is not None else type(each.encoding).__name__] += 1
        if not pair.migrations:
            outcomes["same"] += 1
    print(dict(outcomes), f"{time.monotonic() - began:.0f} s")
    for reason, n in reasons.most_common(25):
        print(f"   {n} {reason}")
