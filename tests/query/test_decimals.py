"""Views over decimals of every size, executed by Spark: what follows a change equals the query run as it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession

from kilonova.model.channel import Channel
from kilonova.model.logic import RunScale
from kilonova.model.schema import Schema
from kilonova.query.maintenance_context import MaintenanceContext
from kilonova.query.materialization import plan_materializations
from kilonova.query.parsing import parse_query
from kilonova.query.properties import RelationFacts
from kilonova.query.rendering import render
from kilonova.query.tree import WEIGHT, Node
from kilonova.query.view_tasks import delta_of

Row = tuple[Any, ...]
Size = tuple[int, int]
"""The precision and the scale of a decimal."""

LIMITS = (
    (38, 0),
    (38, 6),
    (38, 18),
    (38, 37),
    (38, 38),
    (34, 0),
    (28, 6),
    (28, 28),
    (25, 1),
    (24, 24),
    (18, 2),
    (5, 2),
    (1, 0),
)
ROWS = 8

sizes = st.sampled_from(LIMITS) | st.integers(1, 38).flatmap(
    lambda precision: st.tuples(st.just(precision), st.integers(0, precision))
)


def values(size: Size) -> st.SearchStrategy[Decimal | None]:
    """Values of a type, few so large that sums, averages or products overflow in Spark."""
    precision, scale = size
    largest = 10 ** min(precision, 33) - 1
    units = (
        st.sampled_from((0, 1, -1, 2, largest, -largest))
        | st.integers(-largest, largest)
        | st.integers(-min(99, largest), min(99, largest))
    )
    return st.none() | units.map(lambda unit: exact(min(unit, largest), scale))


def exact(units: int, scale: int) -> Decimal:
    with localcontext(prec=60):
        return Decimal(units).scaleb(-scale)


@dataclass(frozen=True)
class History:
    """The types of a table's columns, and the rows that it has at one time after the other, by key."""

    sizes: tuple[Size, ...]
    states: tuple[Mapping[int, Row], ...]

    @property
    def types(self) -> dict[str, str]:
        decimals = {f"x{place}": f"decimal({p},{s})" for place, (p, s) in enumerate(self.sizes)}
        return {"id": "int", "g": "int", "q": "decimal(2,1)"} | decimals


@st.composite
def histories(draw: st.DrawFn) -> History:
    """A table whose rows come, go and are replaced."""
    chosen = tuple(draw(st.lists(sizes, min_size=3, max_size=3)))
    row = st.tuples(st.integers(0, 1), values((2, 1)), *map(values, chosen))
    rows = st.dictionaries(st.integers(0, ROWS - 1), row, max_size=ROWS)
    first, second = draw(rows), draw(rows)
    gone = draw(st.sets(st.integers(0, ROWS - 1)))
    return History(chosen, (first, {key: row for key, row in (first | second).items() if key not in gone}))


class View:
    """A view of the table `t` and all that it keeps, made anew once, then by its changes."""

    def __init__(self, spark: SparkSession, text: str, types: Mapping[str, str]) -> None:
        self._spark = spark
        self._text = text
        self._known = {"t": RelationFacts(types=types, key=("id",))}
        self._items = plan_materializations("v", parse_query(text, self._known), self._known)
        self._schemas: dict[str, Schema] = {"t": Schema.of(*types.items())}
        self._rows: dict[str, Counter[Row]] = {"t": Counter()}

    def run(self, rows: Counter[Row], *, anew: bool) -> None:
        """Bring everything up to date with new rows of the table, and compare the view with its query."""
        spark = self._spark
        self._put("t", rows)
        written = spark.sql(self._text.replace(" FROM t", " FROM t__new"))
        try:
            expected = Counter(map(tuple, written.collect()))
        except ArithmeticException:
            reject()  # what it is to compute has no value in Spark
        for item in self._items:
            tree = render(item.tree, lambda scan: f"{scan.channel}__new")
            if anew or item.whole is not None:
                made = spark.sql(tree)
                self._schemas[item.channel] = Schema.of(
                    *((each.name, each.dataType.simpleString()) for each in made.schema)
                )
                self._rows.setdefault(item.channel, Counter())
                self._known[item.channel] = item.facts
                self._put(item.channel, Counter(map(tuple, made.collect())))
            else:
                self._put(item.channel, self._changed(item.channel, item.tree))
        visible = self._schemas["v"].user_columns
        assert visible == Schema.of(*((each.name, each.dataType.simpleString()) for each in written.schema))
        places = [place for place, name in enumerate(self._schemas["v"].names) if name in visible.names]
        got = Counter(tuple(row[place] for place in places) for row in self._rows["v"].elements())
        assert got == expected, f"{got - expected} too many, {expected - got} too few"

    def _changed(self, channel: str, tree: Node) -> Counter[Row]:
        """The rows of a kept relation after its delta."""
        item = next(each for each in self._items if each.channel == channel)
        own = Channel(name=channel, schema=self._schemas[channel].user_columns, encoding=item.encoding)
        found = MaintenanceContext(
            moved=frozenset(item.reads),
            sizes=dict.fromkeys(item.reads, 1),
            strong=True,
            scale=RunScale.SINGLE_PARTITION,
        )
        delta = delta_of(tree, own, self._schemas[channel], self._known, found)
        assert delta is not None
        ports = {name: read.port for name, read in delta.reads.items()}
        after = self._rows[channel].copy()
        self._put(channel, after)
        for row in self._spark.sql(delta.sql.format(**ports)).collect():
            *values_, weight = row
            assert row.__fields__[-1] == WEIGHT
            after[tuple(values_)] += weight
        assert min(after.values(), default=0) >= 0
        return +after

    def _put(self, channel: str, new: Counter[Row]) -> None:
        old, self._rows[channel] = self._rows[channel], new
        change = Counter(new)
        change.subtract(old)
        ddl = self._schemas[channel].ddl
        weighed = [(*row, weight) for row, weight in change.items() if weight]
        frames = {"old": (list(old.elements()), ddl), "new": (list(new.elements()), ddl)}
        frames["change"] = (weighed, f"{ddl}, {WEIGHT} bigint")
        for when, (rows, columns) in frames.items():
            self._spark.createDataFrame(rows, columns).createOrReplaceTempView(f"{channel}__{when}")


SUMS = (
    "SELECT g, count(*) AS n, {} FROM t GROUP BY g",
    "sum({x}) AS s_{x}, avg({x}) AS a_{x}, sum({x} * q) AS p_{x}, avg({x}) FILTER (WHERE q > 0) AS f_{x}",
)
OTHERS = (
    "SELECT g, {} FROM t GROUP BY g",
    "min({x}) AS l_{x}, max({x}) AS h_{x}, sum(DISTINCT {x}) AS s_{x}, avg(DISTINCT {x}) AS a_{x}",
)
ROWWISE = ("SELECT id, {} FROM t", "{x} * q AS p_{x}, {x} / 7 AS d_{x}, {x} + q AS s_{x}, -{x} < q AS l_{x}")
TOTALS = ("SELECT {} FROM t", "sum({x}) AS s_{x}, avg({x} / 3) AS a_{x}, avg(-{x} * 0.5) AS m_{x}")


@given(history=histories(), query=st.sampled_from((SUMS, TOTALS, OTHERS, ROWWISE)))
@settings(max_examples=4, deadline=None, phases=(Phase.reuse, Phase.generate), suppress_health_check=list(HealthCheck))
def test_a_view_of_decimals_equals_its_query_whatever_changes(
    spark: SparkSession, history: History, query: tuple[str, str]
) -> None:
    whole, each = query
    text = whole.format(", ".join(each.format(x=f"x{place}") for place in range(len(history.sizes))))
    view = View(spark, text, history.types)
    for time, state in enumerate(history.states):
        view.run(Counter((key, *row) for key, row in state.items()), anew=time == 0)
