"""Blocks written and read back on Spark, against the reference.

Many generated cases share one block: the case's number is a column, and part of the key where there is one. A case
also says in which of many columns, of many types and with odd names, its notes and its keys are kept.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from kilonova.errors import EncodingError, StorageFailed
from kilonova.model.block import Base, Block, BlockName, Delta, Kind
from kilonova.model.channel import Channel, ChannelState, Point, PointState
from kilonova.model.encoding import (
    DELETED,
    SET,
    WEIGHT,
    Append,
    Changes,
    Columns,
    Custom,
    Encoding,
    Increment,
    Upsert,
    delta_schema,
)
from kilonova.model.read_plan import DeltaRead, DiffRead, ReadPlan
from kilonova.model.schema import Column, Schema
from kilonova.model.version import Version
from kilonova.model.write_plan import WritePlan
from kilonova.schedule.layout import LayoutThresholds
from kilonova.testing import reference
from kilonova.testing.reference import Bag, Record
from kilonova.warehouse import jobs
from kilonova.warehouse.equality import differ_at_end
from kilonova.warehouse.guards import Misplaced
from kilonova.warehouse.storage import Storage
from kilonova.warehouse.warehouse import Warehouse
from tests.frames import NAN, frame_of, records_of
from tests.seeds import SEED, some
from tests.strategies import (
    APPEND,
    CHANGES,
    CHANGES_KEYED,
    COLUMNS,
    ENCODINGS,
    FUNCTIONS,
    INCREMENT,
    LARGEST,
    REPLACE,
    UPSERT,
    deltas,
    function_of,
    has_diff,
    relations,
    schema_of,
)

cloudpickle.register_pickle_by_value(sys.modules[__name__])

CASES = 60
NOON = datetime(2024, 2, 29, 12, 0, 0, 123456)
TICK = timedelta(microseconds=1)

NOTES: tuple[tuple[str, str, tuple[Any, Any, Any]], ...] = (
    ("note", "string", ("", "a", "b")),
    ("note text", "double", (NAN, 0.0, float("inf"))),
    ("note.dot", "map<string,timestamp>", (frozenset(), frozenset({("k", NOON)}), frozenset({("k", NOON + TICK)}))),
    ("note`tick", "array<string>", ((), (None,), ("x", None))),
    ("NOTE UPPER", "struct<a:int,b:array<int>>", ((None, None), (1, ()), (1, (1,)))),
    ("select", "decimal(38,18)", (Decimal("1E-18"), Decimal("99999999999999999999"), Decimal(0))),
    ("nöte", "timestamp", (NOON, NOON + TICK, NOON - TICK)),
    ("a'quote", "date", (date(1970, 1, 1), date(1969, 12, 31), date(9999, 12, 31))),
    ('d"quote', "binary", (b"", b"\0", b"a")),
    (
        "array of maps",
        "array<map<string,int>>",
        ((), (frozenset({("x", None)}),), (frozenset({("x", 1), ("y", 2)}), None)),
    ),
    ("deep", "struct<m:map<int,double>>", ((None,), (frozenset(),), (frozenset({(1, NAN)}),))),
    ("ntz", "timestamp_ntz", (NOON, NOON + TICK, NOON - TICK)),
)
"""Columns that take the place of `note`: what stands there for "", "a" and "b"."""

KEYS: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("id", "int", (0, 1, 2, 3, -1)),
    ("Key.with `odd` name", "string", ("", " ", "é", "a.b", "`")),
    ("key struct", "struct<x:int,y:string>", ((None, None), (1, None), (1, ""), (2, "a"), (2, "b"))),
    ("when", "timestamp", (NOON, NOON + TICK, NOON - TICK, NOON + 2 * TICK, NOON - 2 * TICK)),
    ("ratio", "double", (NAN, 0.0, float("inf"), float("-inf"), 1e300)),
)
"""Columns that take the place of `id`."""


@dataclass(frozen=True)
class Dress:
    """How the rows of an encoding's small schema are kept in wide ones with a case number."""

    encoding: Encoding
    keys: tuple[tuple[str, str, tuple[Any, ...]], ...] = KEYS

    @property
    def plain(self) -> Schema:
        return schema_of(self.encoding)

    @property
    def notes(self) -> tuple[tuple[str, str, tuple[Any, Any, Any]], ...]:
        if "note" not in self.plain.names:
            return ()
        return NOTES[:1] if isinstance(self.encoding, Custom) else NOTES

    @property
    def schema(self) -> Schema:
        columns = [Column("case", "int")]
        for column in self.plain.columns:
            match column.name:
                case "note":
                    columns += [Column(name, type_) for name, type_, _ in self.notes]
                case "id":
                    columns += [Column(name, type_) for name, type_, _ in self.keys]
                case _:
                    columns.append(column)
        return Schema(tuple(columns))

    def lifted(self, encoding: Encoding) -> Encoding:
        """The encoding of the wide rows."""

        def key(names: tuple[str, ...]) -> tuple[str, ...]:
            ids = (name for name, _, _ in self.keys)
            return ("case", *ids, *(name for name in names if name != "id"))

        match encoding:
            case Append() | Changes(()):
                return encoding
            case Increment(names, measures):
                return Increment(key(names), measures)
            case Custom(names, function):
                return Custom(key(names), function)
            case Upsert(names) | Changes(names) | Columns(names):
                return type(encoding)(key(names))

    def dressed(self, case: int, record: Record) -> Record:
        """A row of the small schema as one of the wide."""
        wide = {name: value for name, value in record.items() if name not in ("note", "id", SET[0])} | {"case": case}
        if wide.get("amount") is not None:
            wide["amount"] = Decimal(wide["amount"])  # sums of no amounts are the integer 0
        for place, (name, _, values) in enumerate(self.keys):
            wide[name] = values[record["id"] if place == case % len(self.keys) else 0]
        if "note" in record and self.notes:
            name, _, values = self.notes[case % len(self.notes)]
            note = record["note"]
            wide[name] = None if note is None else values[("", "a", "b").index(note)]
        if SET[0] in record:
            named = record[SET[0]]
            active = self.notes[case % len(self.notes)][0] if self.notes else ""
            wide[SET[0]] = named and tuple(active if name == "note" else name for name in named)
            wide[SET[0]] = None if named is None else wide[SET[0]] or ()
        return wide

    def undressed(self, wide: Record) -> tuple[int, Record]:
        """The case and the row of the small schema."""
        case = wide["case"]
        name, _, keys = self.keys[case % len(self.keys)]
        record = {column: wide[column] for column in (*self.plain.names, *CONTROL) if column in wide}
        record["id"] = keys.index(wide[name])
        if self.notes:
            active, _, notes = self.notes[case % len(self.notes)]
            kept = wide[active]
            record["note"] = None if kept is None else ("", "a", "b")[notes.index(kept)]
            if wide.get(SET[0]) is not None:
                rest = {name for name, _, _ in self.notes if name != active}
                record[SET[0]] = ["note" if name == active else name for name in wide[SET[0]] if name not in rest]
        again = self.dressed(case, record)
        for name in self.schema.names:
            assert (wide.get(name),) == (again.get(name),), name
        return case, record


CONTROL = (DELETED[0], WEIGHT[0], SET[0])


class Lifted:
    """The functions of a custom encoding, on wide rows."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def _function(self) -> Any:
        return FUNCTIONS[self.name]

    def _call(self, name: str, first: list[Record], second: list[Record]) -> list[Record]:
        function = getattr(self._function, name)
        key = {column: (first or second)[0][column] for column in ("case", *(name for name, _, _ in KEYS))}
        plain = [[{"note": row["note"], "id": 0, "n": row["n"]} for row in rows] for rows in (first, second)]
        return [{**row, **key} for row in function(*plain)]

    def merge(self, base: list[Record], delta: list[Record]) -> list[Record]:
        assert delta, "keys without a delta must not be asked for"
        return self._call("merge", base, delta)

    def chain(self, first: list[Record], second: list[Record]) -> list[Record]:
        assert first
        assert second
        return self._call("chain", first, second)

    def __getattr__(self, name: str) -> Any:
        if name != "diff" or not hasattr(self._function, "diff"):
            raise AttributeError(name)
        return functools.partial(self._call, "diff")


@dataclass(frozen=True)
class Case:
    """A relation at point 1 and what changes it from there."""

    relations: list[Bag]
    steps: list[Any]


@st.composite
def cases(draw: st.DrawFn, encoding: Encoding, pattern: Sequence[Encoding]) -> Case:
    schema = schema_of(encoding)
    history = Case([draw(relations(encoding))], [])
    for using in pattern:
        old = history.relations[-1]
        if using == encoding:
            step = draw(deltas(encoding, old))
        elif isinstance(using, Append):
            step = draw(relations(encoding)) if encoding == CHANGES else Counter()
        else:
            kept = Counter(row for row in sorted(old, key=repr) if draw(st.booleans()))
            new = draw(st.just(kept) | relations(encoding))
            step = reference.diff(CHANGES, schema, old, new)
        function = function_of(using)
        history.steps.append(step)
        history.relations.append(reference.merge(using, schema, old, step, function=function))
    return history


def sampled(strategy: st.SearchStrategy[Case], count: int = CASES) -> list[Case]:
    """Cases of this run's seed."""
    found: list[Case] = []

    @seed(SEED)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return found


@dataclass
class Chained:
    """Blocks of many cases on disk."""

    spark: SparkSession
    folder: Path
    dress: Dress
    cases: list[Case]
    sizes: LayoutThresholds = field(default_factory=LayoutThresholds)
    blocks: list[Block] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def warehouse(self, sizes: LayoutThresholds | None = None) -> Warehouse:
        functions: Callable[[str], Any] = Lifted
        storage = Storage(str(self.folder))
        identity = "".join(c for c in self.folder.name if c.isalnum())
        return Warehouse(self.spark, storage, identity, functions, sizes or self.sizes)

    def state(self, blocks: Iterable[Block] | None = None, schema: Schema | None = None) -> ChannelState:
        channel = Channel(name="c", schema=schema or self.dress.schema, encoding=self.dress.lifted(self.dress.encoding))
        held = tuple(self.blocks if blocks is None else blocks)
        points = tuple(
            Point(number=n, state=PointState.FILLED, version=Version(), time=datetime.now(UTC), run=n)
            for n in range(1, 1 + max((block.end for block in self.blocks), default=0))
        )
        return ChannelState(channel, points, held)

    def write(self, kind: Kind, using: Encoding, rows: Iterable[Record], schema: Schema | None = None) -> Block | None:
        """Write a block of dressed rows."""
        encoding = self.dress.lifted(using)
        schema = schema or self.dress.schema
        columns = schema if isinstance(kind, Base) else delta_schema(encoding, schema)
        old = self.state().snapshot(kind.start) if isinstance(kind, Delta) else None
        plan = WritePlan(
            name=BlockName(next(self.numbers)), kind=kind, schema=schema, encoding=encoding, old=old, expected=100_000
        )
        block = self.warehouse().write(frame_of(self.spark, columns, rows), plan)
        if block is not None:
            self.blocks.append(block)
        return block

    def dressed(self, rows: Callable[[Case], Iterable[Record]]) -> list[Record]:
        return [self.dress.dressed(number, record) for number, case in enumerate(self.cases) for record in rows(case)]

    def read(self, readings: Sequence[ReadPlan], sizes: LayoutThresholds | None = None) -> Iterator[list[list[Record]]]:
        """The rows of each reading by case, all fetched by one job; the readings have the same columns."""
        warehouse = self.warehouse(sizes)
        from pyspark.sql import functions as F

        frames = [warehouse.open(reading).withColumn("reading", F.lit(n)) for n, reading in enumerate(readings)]
        whole = frames[0]
        for frame in frames[1:]:
            assert frame.schema.simpleString() == frames[0].schema.simpleString()
            whole = whole.unionByName(frame)
        found: list[list[list[Record]]] = [[[] for _ in self.cases] for _ in readings]
        for record in records_of(whole):
            number = record.pop("reading")
            case, plain = self.dress.undressed(record)
            found[number][case].append(plain)
        yield from found


def scattered(encoding: Encoding, rows: Iterable[Record]) -> Iterator[Record]:
    """Rows of a delta, some of them in parts that add up to the same."""
    for place, row in enumerate(rows):
        if place % 2 and isinstance(encoding, Changes):
            yield row | {WEIGHT[0]: row[WEIGHT[0]] + 1}
            yield row | {WEIGHT[0]: -1}
        elif place % 2 and isinstance(encoding, Increment):
            yield row
            yield row | {"n": 1, "amount": None}
            yield row | {"n": -1 - row["n"], "amount": -row["amount"]}
            yield row
        else:
            yield row


def chained(
    spark: SparkSession,
    folder: Path,
    encoding: Encoding,
    pattern: Sequence[Encoding],
    *,
    sizes: LayoutThresholds | None = None,
    keys: tuple[Any, ...] = KEYS,
) -> Chained:
    """Write what `sampled` gives: a base at point 1, and a delta per element of the pattern."""
    made = Chained(spark, folder, Dress(encoding, keys), sampled(cases(encoding, pattern)), sizes or LayoutThresholds())
    schema = schema_of(encoding)
    made.write(Base(1), encoding, made.dressed(lambda case: reference.records(schema, case.relations[0])))
    for place, using in enumerate(pattern):
        block = made.write(
            Delta(place + 1, place + 2),
            using,
            made.dressed(lambda case: scattered(using, reference.rows_of(using, schema, case.steps[place]))),  # noqa: B023
        )
        assert block is not None
        gained = sum(case.relations[place + 1].total() - case.relations[place].total() for case in made.cases)
        assert block.statistics.net_rows == (None if isinstance(using, Increment) else gained)
        lost = sum((case.relations[place] - case.relations[place + 1]).total() for case in made.cases)
        if isinstance(using, Increment):
            assert block.statistics.removals is None
        elif isinstance(using, Changes):
            assert block.statistics.removals == sum(
                -weight for case in made.cases for weight in case.steps[place].values() if weight < 0
            )
        else:
            assert block.statistics.removals == lost
    return made


def assert_snapshots(
    made: Chained, state: ChannelState, points: Sequence[int], sizes: LayoutThresholds | None = None
) -> None:
    found = made.read([state.snapshot(point) for point in points], sizes)
    for point, by_case in zip(points, found, strict=True):
        for number, rows in enumerate(by_case):
            expected = made.cases[number].relations[point - 1] if point else Counter()
            bag = Counter(tuple(row[name] for name in made.dress.plain.names) for row in rows)
            assert bag == expected, f"case {number} at point {point}"


def assert_changes(
    made: Chained, state: ChannelState, pairs: Sequence[tuple[int, int]], sizes: LayoutThresholds | None = None
) -> None:
    """Both the strong delta and that in the channel's encoding."""
    encoding, schema = made.dress.encoding, made.dress.plain
    function = function_of(encoding)
    found = made.read([state.changes(*pair) for pair in pairs], sizes)
    for pair, by_case in zip(pairs, found, strict=True):
        for number, rows in enumerate(by_case):
            old, new = (made.cases[number].relations[point - 1] if point else Counter() for point in pair)
            expected = reference.diff(CHANGES, schema, old, new)
            weights: Counter[tuple[Any, ...]] = Counter()
            for row in rows:
                weights[tuple(row[name] for name in schema.names)] += row[WEIGHT[0]]
            if encoding != APPEND:
                assert len(weights) == len(rows), f"case {number} from {pair}: a row occurs twice"
            assert weights == expected, f"case {number} from {pair}"
    weak = [(pair, state.delta(*pair)) for pair in pairs]
    weak = [(pair, reading) for pair, reading in weak if isinstance(reading, DeltaRead) or has_diff(encoding)]
    if not weak:
        return
    for (pair, reading), by_case in zip(weak, made.read([r for _, r in weak], sizes), strict=True):
        for number, rows in enumerate(by_case):
            case = made.cases[number]
            old, new = (case.relations[point - 1] if point else Counter() for point in pair)
            delta = reference.delta_of(encoding, schema, rows)
            about = f"case {number} from {pair}"
            if isinstance(reading, DeltaRead):
                change = reference.empty(encoding)
                for step in case.steps[pair[0] - 1 : pair[1] - 1]:
                    change = reference.chain(encoding, schema, change, step, function=function)
                assert delta == change, about
            else:
                assert delta == reference.diff(encoding, schema, old, new, function=function), about
            assert reference.merge(encoding, schema, old, delta, function=function) == new, about


PAIRS = ((1, 2), (2, 5), (3, 3))


@pytest.mark.parametrize("encoding", some(ENCODINGS, 1))
def test_chains_of_one_encoding_read_as_the_reference_says(
    spark: SparkSession, tmp_path: Path, encoding: Encoding
) -> None:
    made = chained(spark, tmp_path, encoding, [encoding] * 4)
    assert len(made.cases) >= CASES // 2
    assert_snapshots(made, made.state(), [0, 1, 2, 5])
    assert_changes(made, made.state(), PAIRS)


@pytest.mark.parametrize("encoding", some([APPEND, UPSERT, CHANGES, INCREMENT, COLUMNS, REPLACE], 1))
def test_chains_of_mixed_encodings_read_as_the_reference_says(
    spark: SparkSession, tmp_path: Path, encoding: Encoding
) -> None:
    other = APPEND if encoding == CHANGES else CHANGES
    made = chained(spark, tmp_path, encoding, [encoding, other, encoding, encoding, other])
    assert_snapshots(made, made.state(), [3, 6])
    assert_changes(made, made.state(), [(1, 4)])


@st.composite
def widened(draw: st.DrawFn, encoding: Encoding, added: str) -> Case:
    """Cases whose first two steps do not know a column yet."""
    schema = schema_of(encoding)
    nothing = Decimal(0) if isinstance(encoding, Increment) else None

    def narrow(rows: Iterable[Record]) -> list[Record]:
        found = [row | {added: nothing} for row in rows]
        for row in found:
            if row.get(SET[0]) is not None:
                row[SET[0]] = [name for name in row[SET[0]] if name != added]
        return found

    base = draw(relations(encoding))
    history = Case([reference.relation_of(encoding, schema, narrow(reference.records(schema, base)))], [])
    for place in range(3):
        step = draw(deltas(encoding, history.relations[-1]))
        if place < 2:
            step = reference.delta_of(encoding, schema, narrow(reference.rows_of(encoding, schema, step)))
        history.steps.append(step)
        history.relations.append(reference.merge(encoding, schema, history.relations[-1], step))
    return history


@pytest.mark.parametrize("encoding", some([APPEND, UPSERT, CHANGES, CHANGES_KEYED, INCREMENT, COLUMNS], 1))
def test_older_blocks_lack_new_columns_and_have_dropped_ones(
    spark: SparkSession, tmp_path: Path, encoding: Encoding
) -> None:
    added = "amount" if encoding == INCREMENT else "n"
    made = Chained(spark, tmp_path, Dress(encoding), sampled(widened(encoding, added)))
    plain, schema = made.dress.plain, made.dress.schema
    older = schema.without(added).plus(("gone", "bigint"))
    before = Increment(("id",), ("n", "gone")) if encoding == INCREMENT else encoding

    def rows(place: int) -> list[Record]:
        found = made.dressed(lambda case: reference.rows_of(encoding, plain, case.steps[place]))
        for row in found if place < 2 else ():
            dropped = row.pop(added)
            row["gone"] = row["n"] if encoding == INCREMENT else dropped if isinstance(encoding, Changes) else 1
            if encoding == COLUMNS and row[SET[0]] is not None:
                row[SET[0]] += ("gone",)
        return found

    first = made.dressed(lambda case: reference.records(plain, case.relations[0]))
    made.write(Base(1), before, [row | {"gone": row["n"]} for row in first], older)
    for place in range(2):
        made.write(Delta(place + 1, place + 2), before, rows(place), older)
    made.write(Delta(3, 4), encoding, rows(2))
    state = made.state()
    assert state.schema_at(3) == older
    assert state.schema_at(4) == schema
    assert_snapshots(made, state, [4])
    assert_changes(made, state, [(1, 4)])
    assert_changes(made, state, [(3, 4)])


def ineffective(encoding: Encoding, base: Bag, delta: Any) -> Any:
    """The part of a delta that changes nothing."""
    schema, function = schema_of(encoding), function_of(encoding)
    kept = reference.effective(encoding, schema, delta, base, function=function)
    if isinstance(encoding, Append | Changes | Increment):
        return reference.empty(encoding)
    if isinstance(encoding, Custom):
        return Counter(delta) - Counter(kept)
    return {key: value for key, value in delta.items() if key not in kept}


@pytest.mark.parametrize("encoding", some([APPEND, UPSERT, CHANGES, INCREMENT, COLUMNS, REPLACE], 2))
def test_a_delta_that_changes_nothing_is_not_published(spark: SparkSession, tmp_path: Path, encoding: Encoding) -> None:
    made = chained(spark, tmp_path, encoding, [])
    schema = schema_of(encoding)
    steps = sampled(cases(encoding, [encoding]))
    assert [case.relations[0] for case in steps] != [case.relations[0] for case in made.cases]
    made = replace(made, cases=[replace_last(encoding, case) for case in steps], blocks=[], folder=tmp_path / "again")
    made.write(Base(1), encoding, made.dressed(lambda case: reference.records(schema, case.relations[0])))
    rows = made.dressed(lambda case: reference.rows_of(encoding, schema, case.steps[0]))
    if isinstance(encoding, Upsert | Columns | Custom):
        assert len(rows) > CASES // 4
    elif isinstance(encoding, Changes | Increment):
        base = made.dressed(lambda case: reference.records(schema, case.relations[0]))
        for row in base:
            one = row | ({WEIGHT[0]: 2} if isinstance(encoding, Changes) else {})
            minus = {WEIGHT[0]: -2} if isinstance(encoding, Changes) else {"n": -row["n"], "amount": -row["amount"]}
            rows += [one, row | minus]
        assert rows
    assert made.write(Delta(1, 2), encoding, rows) is None
    if isinstance(encoding, Upsert | Columns):
        tombstones = [row for row in rows if row[DELETED[0]]]
        assert tombstones
        assert replace(made, blocks=[], folder=tmp_path / "empty").write(Delta(0, 1), encoding, tombstones) is None


@pytest.mark.parametrize("deltas", [0, 2])
def test_of_an_upsert_to_a_large_channel_a_few_rows_are_compared_first(
    spark: SparkSession, tmp_path: Path, deltas: int
) -> None:
    made = replace(chained(spark, tmp_path, UPSERT, [UPSERT] * deltas), sizes=LayoutThresholds(full_compare_max=0))
    now = made.dressed(lambda case: reference.records(made.dress.plain, case.relations[-1]))
    point = len(made.blocks)
    same = [row | {DELETED[0]: False} for row in sorted(now, key=lambda row: row["case"])]
    other = [row | {"n": 77} for row in same]
    assert made.write(Delta(point, point + 1), UPSERT, same) is None
    at_once = made.write(Delta(point, point + 1), UPSERT, other)
    assert at_once is not None
    assert (at_once.statistics.removals, at_once.statistics.net_rows) == (None, None)
    made.blocks.remove(at_once)
    found = made.write(Delta(point, point + 1), UPSERT, [*same[:-1], other[-1]])
    assert found is not None
    assert (found.statistics.removals, found.statistics.net_rows) == (1, 0)


def test_few_rows_differ_or_not() -> None:
    assert not differ_at_end([])
    assert not differ_at_end([("a", (1, float("nan")), -1), ("a", (1, float("nan")), 3)])
    assert not differ_at_end([("a", ({"x": 1, "y": 2},), 0), ("a", ({"y": 2, "x": 1},), 3)])
    assert not differ_at_end([("a", (1,), 0), ("a", (2,), 1), ("b", (9,), 1), ("a", (2,), 3)])
    assert not differ_at_end([("a", (1,), 0), ("a", None, 2), ("a", None, 3), ("b", None, 3)])
    assert differ_at_end([("a", (1,), 0), ("a", (2,), 3)])
    assert differ_at_end([("a", (1,), 3)])
    assert differ_at_end([("a", (1,), -1), ("a", None, 3)])


def test_a_few_rows_of_a_file_that_is_none_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    made = chained(spark, tmp_path, UPSERT, [])
    (file,) = (tmp_path / "block_1").glob("*.parquet")
    file.write_bytes(b"PAR1 but not really PAR1")
    with pytest.raises(StorageFailed, match="block_1"):
        made.warehouse().storage.first_rows(BlockName(1), ["id"], 8)


def replace_last(encoding: Encoding, case: Case) -> Case:
    step = ineffective(encoding, case.relations[0], case.steps[0])
    return Case([case.relations[0]] * 2, [step])


ALIGNED = LayoutThresholds(bucketing_min=1, bucket_size=1 << 16, broadcast_max=0)


@pytest.mark.parametrize("encoding", some([UPSERT, CHANGES_KEYED, INCREMENT, COLUMNS], 1))
def test_all_ways_to_merge_give_the_same(spark: SparkSession, tmp_path: Path, encoding: Encoding) -> None:
    folder = tmp_path / f"{tmp_path.name}'s"
    folder.mkdir()
    made = chained(spark, folder, encoding, [encoding] * 3, sizes=ALIGNED, keys=KEYS[:-1])
    assert made.blocks[0].buckets == made.blocks[0].statistics.files == 4
    assert_snapshots(made, made.state(), [1, 2, 4])
    assert_changes(made, made.state(), [(1, 3)])
    merged = made.warehouse().open(made.state().snapshot(4))
    assert_aligned(merged._jdf.queryExecution().executedPlan().toString())

    snapshot = made.state().snapshot(3)
    third = sum(block.statistics.bytes for block in snapshot.blocks) // 3
    compacted = made.warehouse(replace(ALIGNED, bucket_size=2 * third)).compact(snapshot, name=BlockName(9))
    assert compacted.buckets == compacted.statistics.files == 4
    made.blocks.append(compacted)
    assert made.state().snapshot(4).base == compacted
    assert_snapshots(made, made.state(), [3, 4])

    plain = replace(made, blocks=[replace(block, buckets=0) for block in made.blocks[:-1]])
    for sizes in (
        LayoutThresholds(),
        LayoutThresholds(single_task_max=0),
        LayoutThresholds(
            single_task_max=0,
            broadcast_max=0,
        ),
    ):
        assert_snapshots(plain, plain.state(), [2, 4], sizes)
        assert_changes(plain, plain.state(), [(1, 3)], sizes)
    for reading in (plain.state().snapshot(4), plain.state().delta(1, 3), plain.state().changes(1, 3)):
        opened = plain.warehouse().open(reading)
        assert "Exchange" not in opened._jdf.queryExecution().executedPlan().toString()


def test_rows_that_do_not_stand_where_they_were_taken_to_are_noticed(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 100, 1, 4).selectExpr("cast(id AS int) AS id", "'' AS note", "0L AS n")
    layout = jobs.Layout(key=("id",), buckets=4, tasks=None, trusted=True, arranged=True)
    plan = WritePlan(name=BlockName(1, ""), kind=Base(1), schema=schema_of(UPSERT), encoding=UPSERT)
    with pytest.raises(Misplaced):
        jobs.write(rows, str(tmp_path / "block"), plan, layout)


def test_rows_that_spark_moves_once_more_are_not_taken_for_buckets(spark: SparkSession, tmp_path: Path) -> None:
    made = chained(spark, tmp_path, UPSERT, [UPSERT], sizes=ALIGNED)
    assert made.blocks[0].buckets == 0
    assert_snapshots(made, made.state(), [1, 2])


def assert_aligned(plan: str) -> None:
    """Nothing is shuffled or sorted between the scan of the buckets and the join."""
    above: list[tuple[int, str]] = []
    for line in plan.splitlines():
        text = line.lstrip(" :+-*(0123456789)")
        depth = len(line) - len(text)
        above = [(d, t) for d, t in above if d < depth]
        if "Bucketed: true" in text:
            between = []
            for _, operator in reversed(above):
                if operator.startswith("SortMergeJoin"):
                    break
                between.append(operator)
            else:
                pytest.fail(f"no merge join above the buckets in\n{plan}")
            assert not [t for t in between if t.startswith(("Exchange", "Sort ", "BroadcastExchange"))], plan
            return
        above.append((depth, text))
    pytest.fail(f"no scan of buckets in\n{plan}")


def test_a_custom_encoding_without_a_diff_says_so(spark: SparkSession, tmp_path: Path) -> None:
    made = chained(spark, tmp_path, LARGEST, [LARGEST])
    snapshot = made.state().snapshot
    reading = DiffRead(old=snapshot(1), new=snapshot(2), encoding=made.dress.lifted(LARGEST))
    with pytest.raises(EncodingError, match="has no diff"):
        made.warehouse().open(reading)
