"""Merge, chain, diff and the conversions on DataFrames, one rule per encoding (Nova, 2.1).

Every function is lazy and equals the function of the same name in `kilonova.testing.reference`, as bags. A
*chained* delta has one row per key (for keyed encodings) and no position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_
from typing import Protocol, assert_never

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kilonova.errors import EncodingError
from kilonova.model.encoding import Append, Changes, Columns, Custom, Encoding, Increment, Upsert, delta_schema
from kilonova.model.schema import Schema
from kilonova.schedule.layout import Strategy
from kilonova.warehouse.blocks import POSITION, column, conform
from kilonova.warehouse.cogroup import Rows, folded_per_key, over_many, per_key
from kilonova.warehouse.equality import any_of, comparable, weights_added
from kilonova.warehouse.guards import Guard, fail


class PerKey(Protocol):
    """User functions of a custom encoding, on the rows of one key (Nova, section 3, second template).

    `merge` and `chain` may accept several deltas at once, in order.
    """

    def merge(self, base: Rows, delta: Rows) -> Rows:
        """Return the key's rows after the delta."""

    def chain(self, first: Rows, second: Rows) -> Rows:
        """Return one delta equivalent to the two."""

    def diff(self, old: Rows, new: Rows) -> Rows:
        """Return the delta that leads from old to new; optional, and not called for equal rows."""


Functions = Callable[[str], PerKey]
"""Return the per-key functions of a custom encoding by name."""


def chain(deltas: DataFrame, encoding: Encoding, schema: Schema, functions: Functions) -> DataFrame:
    """C(Δ₁, Δ₂, …): combine delta rows with positions into one delta without.

    Args:
        deltas: rows of delta blocks with their position.
        encoding: their encoding.
        schema: the relation's schema at the end.
        functions: the per-key functions of custom encodings.
    """
    match encoding:
        case Append():
            return conform(deltas, schema)
        case Upsert(key):
            return conform(_latest(deltas, key), schema, ["_deleted"])
        case Changes():
            return weights_added(conform(deltas, schema, ["_weight"]), schema.names, column("_weight"))
        case Increment(key, _):
            measures = _others(schema, key)
            summed = conform(deltas, schema).groupBy(*map(column, key))
            sums = ((schema.type_of(name), name, F.sum(column(name))) for name in measures)
            added = summed.agg(*(F.coalesce(total.cast(kind), F.lit(0).cast(kind)).alias(n) for kind, n, total in sums))
            return conform(added.where(_any_nonzero(measures)), schema)
        case Columns(key):
            return _patched(deltas, key, schema)
        case Custom(key, name):
            wanted = delta_schema(encoding, schema)
            rows = conform(deltas, wanted, [POSITION])
            return folded_per_key(rows, POSITION, key, wanted, over_many(functions(name).chain, deltas=True))
        case _:
            assert_never(encoding)


def merge(
    base: DataFrame,
    delta: DataFrame,
    encoding: Encoding,
    schema: Schema,
    strategy: Strategy,
    functions: Functions,
) -> DataFrame:
    """M(B, Δ): the relation after a chained delta.

    Args:
        base: rows of the relation before, with the columns of `schema`.
        delta: a chained delta; of a custom encoding, it may also be several with their positions.
        encoding: its encoding.
        schema: the relation's schema after it.
        strategy: the join strategy.
        functions: the per-key functions of custom encodings.
    """
    names = schema.names
    match encoding:
        case Append():
            return base.unionByName(delta)
        case Changes(key) if key:
            return merge(base, _as_upsert(delta, key, schema), Upsert(key), schema, strategy, functions)
        case Changes():
            weighed = base.withColumn("_weight", F.lit(1).cast("bigint")).unionByName(delta)
            return repeated(weights_added(weighed, schema.names, column("_weight")), schema)
        case Upsert(key) if strategy is Strategy.BROADCAST:
            untouched = base.join(F.broadcast(delta.select(*map(column, key))), list(key), "left_anti")
            return conform(untouched, schema).unionByName(conform(delta.where(~column("_deleted")), schema))
        case Upsert(key):
            met = _met(base, delta, key, strategy)
            touched = column("_deleted", "d").isNotNull()
            return met.where(~F.coalesce(column("_deleted", "d"), F.lit(False))).select(
                *(F.when(touched, column(n, "d")).otherwise(column(n, "b")).alias(n) for n in names)
            )
        case Increment(key, _):
            return _combined(_met(base, delta, key, strategy), key, schema, lambda before, change: before + change)
        case Columns(key):
            met = _met(base, delta, key, strategy).where(~F.coalesce(column("_deleted", "d"), F.lit(False)))
            keys = {n: F.coalesce(column(n, "b"), column(n, "d")) for n in key}
            others = {n: F.when(_sets(n, "d"), column(n, "d")).otherwise(column(n, "b")) for n in names if n not in key}
            return met.select(*((keys | others)[n].alias(n) for n in names))
        case Custom(key, name):
            apply = over_many(functions(name).merge)
            position = POSITION if POSITION in delta.columns else None
            return per_key(base, delta, key, schema, lambda old, *new: apply(old, *new) if new else old, position)
        case _:
            assert_never(encoding)


def diff(old: DataFrame, new: DataFrame, encoding: Encoding, schema: Schema, functions: Functions) -> DataFrame:
    """D(old, new): a chained delta that leads from one relation to another.

    Args:
        old: rows of the relation before, with the columns of `schema`.
        new: rows of the relation after.
        encoding: the encoding of the delta.
        schema: the relation's schema after.
        functions: the per-key functions of custom encodings.

    Raises:
        EncodingError: the custom encoding has no diff.
    """
    match encoding:
        case Append():
            strong = _difference(old, new, schema)
            checked = strong.withColumn(
                "_weight",
                F.when(column("_weight") > 0, column("_weight")).otherwise(fail(Guard.DISAPPEARED).cast("bigint")),
            )
            return repeated(checked, schema)
        case Upsert(key):
            return _changed_rows(old, new, key, schema)
        case Changes():
            return _difference(old, new, schema)
        case Increment(key, _):
            return _combined(_met(old, new, key), key, schema, lambda before, after: after - before)
        case Columns(key):
            return _changed_columns(old, new, key, schema)
        case Custom(key, name):
            find = getattr(functions(name), "diff", None)
            if find is None:
                raise EncodingError(
                    f"the custom encoding {name} has no diff, which is needed to compute its changes",
                    hint="Give its functions a diff, or read the channel with ALL",
                )

            def found(*sides: Rows) -> Rows:
                one, two = sides if len(sides) == 2 else (*sides, [])
                return [] if _alike(one, two) else list(find(one, two))

            return per_key(old, new, key, delta_schema(encoding, schema), found)
        case _:
            assert_never(encoding)


def _combined(
    met: DataFrame, key: tuple[str, ...], schema: Schema, combine: Callable[[Column, Column], Column]
) -> DataFrame:
    """Return joined rows of an increment channel with their measures combined; keys that become zero are absent."""
    measures = _others(schema, key)
    combined = met.select(
        *(F.coalesce(column(name, "b"), column(name, "d")).alias(name) for name in key),
        *(
            combine(_zeroed(name, "b", schema), _zeroed(name, "d", schema)).cast(schema.type_of(name)).alias(name)
            for name in measures
        ),
    )
    return conform(combined.where(_any_nonzero(measures)), schema)


def _changed_rows(old: DataFrame, new: DataFrame, key: tuple[str, ...], schema: Schema) -> DataFrame:
    """Return the upsert delta that leads from one relation to another."""
    others, gone = _others(schema, key), column("_in_d").isNull()
    changed = gone | column("_in_b").isNull() | _differ(others, new)
    rows = (
        _both(old, new, key)
        .where(changed)
        .select(
            *(F.coalesce(column(n, "d"), column(n, "b")).alias(n) for n in key),
            *(column(n, "d").alias(n) for n in others),
            gone.alias("_deleted"),
        )
    )
    return rows.select(*map(column, (*schema.names, "_deleted")))


def _changed_columns(old: DataFrame, new: DataFrame, key: tuple[str, ...], schema: Schema) -> DataFrame:
    """Return the columns delta that leads from one relation to another."""
    others, gone, fresh = _others(schema, key), column("_in_d").isNull(), column("_in_b").isNull()
    every = F.array(*map(F.lit, others)).cast("array<string>")
    changed = F.array_compact(F.array(*(F.when(_differ((n,), new), F.lit(n)) for n in others))).cast("array<string>")
    rows = _both(old, new, key).select(
        *(F.coalesce(column(n, "d"), column(n, "b")).alias(n) for n in key),
        *(column(n, "d").alias(n) for n in others),
        gone.alias("_deleted"),
        F.when(gone, F.lit(None)).when(fresh, every).otherwise(changed).alias("_set"),
        fresh.alias("_fresh"),
    )
    effective = rows.where(column("_deleted") | column("_fresh") | (F.size("_set") > 0))
    return effective.select(*map(column, (*schema.names, "_deleted", "_set")))


def strong(
    old: DataFrame,
    delta: DataFrame,
    encoding: Encoding,
    schema: Schema,
    strategy: Strategy,
    functions: Functions,
) -> DataFrame:
    """Convert a chained weak delta to a strong one: the rows that it removes from the snapshot before, and adds.

    Args:
        old: rows of the relation before, with the columns of `schema`.
        delta: a chained delta.
        encoding: its encoding.
        schema: the relation's schema after it.
        strategy: the join strategy; ALIGNED is handled as SHUFFLED.
        functions: the per-key functions of custom encodings.
    """
    match encoding:
        case Append():
            return delta.withColumn("_weight", F.lit(1).cast("bigint"))
        case Changes():
            return delta
        case Upsert(key) | Increment(key, _) | Columns(key) | Custom(key, _, _):
            keys = delta.select(*map(column, key))
            if isinstance(encoding, Custom):
                keys = keys.distinct()
            match strategy:
                case Strategy.TOGETHER:  # Spark would shuffle for a semi-join if the rows were not in one partition yet
                    touched = old.hint("merge").join(keys, list(key)).coalesce(1)
                case Strategy.BROADCAST:
                    touched = old.join(F.broadcast(keys), list(key), "left_semi")
                case Strategy.ALIGNED | Strategy.SHUFFLED:
                    touched = old.join(keys, list(key), "left_semi")
            touched = conform(touched, schema)
            if isinstance(encoding, Custom):
                return _difference(touched, merge(touched, delta, encoding, schema, strategy, functions), schema)
            return replaced(touched, delta, encoding, schema, together=strategy is Strategy.TOGETHER)
        case _:
            assert_never(encoding)


def counted(changes: DataFrame) -> DataFrame:
    """Count the rows that a strong delta adds and removes, as one row."""
    added = F.sum(F.when(column("_weight") > 0, column("_weight"))).alias("added")
    return changes.agg(added, F.sum(F.when(column("_weight") < 0, -column("_weight"))).alias("removed"))


def upserted(
    base: DataFrame | None,
    older: DataFrame | None,
    delta: DataFrame,
    key: tuple[str, ...],
    schema: Schema,
    *,
    broadcast: bool,
    single: bool,
) -> DataFrame:
    """Count an upsert's effect on the snapshot before it, as `counted` does, without building that snapshot.

    Only rows with the delta's keys are read.

    Args:
        base: rows of the base, if there is one.
        older: rows of the deltas after it, with their position.
        delta: the upsert's rows.
        key: the key columns.
        schema: the relation's schema.
        broadcast: whether the delta is small enough for a broadcast join.
        single: whether the input is so small that a single task is fastest.
    """
    columns = [*map(column, schema.names), column("_deleted")]
    rows = delta.select(*columns, F.lit(None).cast("bigint").alias(POSITION))
    keys = delta.select(*map(column, key))
    if base is not None:
        base = base.select(*map(column, schema.names), F.lit(False).alias("_deleted"), F.lit(-1).alias(POSITION))
    for before in (base, older):
        if before is not None:
            if not single:
                before = before.join(F.broadcast(keys) if broadcast else keys, list(key), "left_semi")
            rows = rows.unionByName(conform(before, schema, ["_deleted", POSITION]))
    if single:
        rows = rows.coalesce(1)
    packed = F.struct(*map(column, (*_others(schema, key), "_deleted")))
    met = rows.groupBy(*map(column, key)).agg(
        F.max_by(packed, column(POSITION)).alias("b"),
        F.first(F.when(column(POSITION).isNull(), packed), ignorenulls=True).alias("d"),
    )
    was = ~F.coalesce(column("_deleted", "b"), F.lit(True))
    now = ~column("_deleted", "d")
    differ = _differ(_others(schema, key), delta)
    return met.where(column("d").isNotNull()).agg(
        F.count_if(now & (~was | differ)).alias("added"), F.count_if(was & (~now | differ)).alias("removed")
    )


def replaced(
    old: DataFrame, delta: DataFrame, encoding: Upsert | Increment | Columns, schema: Schema, *, together: bool
) -> DataFrame:
    """Convert to a strong delta, as `strong`, where `old` is restricted to the delta's keys or cheap to look up in.

    Args:
        old: the restricted rows.
        delta: a chained delta.
        encoding: its encoding.
        schema: the relation's schema after it.
        together: whether both are in one partition.
    """
    key, others = encoding.key, _others(schema, encoding.key)
    on = reduce(and_, (column(name, "b") == column(name, "d") for name in key))
    marked = old.withColumn("_in_b", F.lit(1))
    marked = marked.hint("merge") if together else marked
    met = delta.alias("d").join(marked.alias("b"), on, "left_outer")
    met = met.coalesce(1) if together else met
    fresh = column("_in_b").isNull()
    match encoding:
        case Upsert():
            gone = column("_deleted")
            new = {name: column(name, "d") for name in others}
        case Columns():
            gone = column("_deleted")
            new = {name: F.when(_sets(name, "d"), column(name, "d")).otherwise(column(name, "b")) for name in others}
        case Increment():
            sums = {name: _zeroed(name, "b", schema) + _zeroed(name, "d", schema) for name in others}
            gone = ~any_of(F.signum(total) != 0 for total in sums.values())
            new = {name: total.cast(schema.type_of(name)) for name, total in sums.items()}
        case _:
            assert_never(encoding)
    after = [(column(name, "d") if name in key else new[name]).alias(name) for name in schema.names]
    types = {field.name: field.dataType for field in old.schema.fields}
    pairs = ((comparable(column(name, "b"), types[name]), comparable(new[name], types[name])) for name in others)
    differ = any_of(~one.eqNullSafe(other) for one, other in pairs)
    pair = F.array(
        F.when(~fresh & (gone | differ), F.struct(F.lit(-1).cast("bigint").alias("_weight"), *_fields(schema, "b"))),
        F.when(~gone & (fresh | differ), F.struct(F.lit(1).cast("bigint").alias("_weight"), *after)),
    )
    rows = met.select(F.explode(F.array_compact(pair)).alias("_row"))
    return rows.select(*(column(n, "_row").alias(n) for n in (*schema.names, "_weight")))


def inserted(patches: DataFrame, encoding: Columns, schema: Schema) -> DataFrame:
    """Return the rows that patches of absent keys insert: null where a patch does not set a column.

    Args:
        patches: a columns delta with all its control columns, without deletions.
        encoding: its encoding.
        schema: the relation's schema after it.
    """
    whole = conform(patches, schema, ["_set"])
    return whole.select(
        *(
            column(n) if n in encoding.key else F.when(_sets(n), column(n)).cast(schema.type_of(n)).alias(n)
            for n in schema.names
        )
    )


def among(rows: DataFrame, touched: DataFrame, names: Sequence[str], *, broadcast: bool) -> DataFrame:
    """Return the rows that equal a touched row in the given columns.

    Args:
        rows: rows of a relation.
        touched: rows with the same columns.
        names: the columns to compare by; nulls are equal.
        broadcast: whether the touched rows are small enough for a broadcast join.
    """
    types = {field.name: field.dataType for field in rows.schema.fields}
    wanted = touched.select(*(comparable(column(n), types[n]).alias(f"_t{place}") for place, n in enumerate(names)))
    pairs = (comparable(column(n), types[n]).eqNullSafe(F.col(f"_t{place}")) for place, n in enumerate(names))
    return rows.join(F.broadcast(wanted) if broadcast else wanted, reduce(and_, pairs), "left_semi")


def misapplied(before: DataFrame, delta: DataFrame, key: tuple[str, ...], schema: Schema) -> DataFrame:
    """Return the violations after a strong delta: rows of negative weight, and rows with a duplicate key.

    Args:
        before: the rows that the delta touches, with their weights.
        delta: a strong delta.
        key: the columns that are unique in every snapshot; empty if there are none.
        schema: the relation's schema after it.
    """
    whole = before.unionByName(conform(delta, schema, ["_weight"]))
    after = weights_added(whole, schema.names, column("_weight"))
    wrong = column("_weight") < 0
    if key:
        often = F.sum(F.greatest(column("_weight"), F.lit(0))).over(Window.partitionBy(*map(column, key)))
        after, wrong = after.withColumn("_often", often), wrong | (column("_often") > 1)
    return after.where(wrong).select(*map(column, (*schema.names, "_weight"))).orderBy("_weight")


def inserts(changes: DataFrame, schema: Schema) -> DataFrame:
    """Return the rows of a strong delta that is known to remove none."""
    return repeated(changes.where(column("_weight") > 0), schema)


def repeated(weighed: DataFrame, schema: Schema) -> DataFrame:
    """Expand rows with weights to a bag: each row as often as its weight; a negative weight is an error."""
    below = fail(Guard.RETRACTION).cast("int")
    often = F.when(column("_weight") < 0, below).otherwise(column("_weight").cast("int"))
    rows = weighed.withColumn("_weight", F.explode(F.sequence(F.lit(1), often)))
    return conform(rows, schema)


def amounted(rows: DataFrame, encoding: Increment) -> DataFrame:
    """Normalize rows of an increment relation: null amounts become zero, and keys without any amount are dropped."""
    types = {field.name: field.dataType for field in rows.schema.fields}
    filled = rows.withColumns({n: F.coalesce(column(n), F.lit(0).cast(types[n])) for n in encoding.measures})
    return filled.where(_any_nonzero(encoding.measures))


def _others(schema: Schema, key: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in schema.names if name not in key)


def _fields(schema: Schema, of: str) -> list[Column]:
    return [column(name, of).alias(name) for name in schema.names]


def overwritten(base: DataFrame, deltas: DataFrame, key: tuple[str, ...], schema: Schema) -> DataFrame:
    """M(B, C(Δ₁, Δ₂, …)) of upserts that are small enough to broadcast their keys.

    Args:
        base: rows of the relation before, with the columns of `schema`.
        deltas: rows of delta blocks with their position.
        key: the key columns.
        schema: the relation's schema after them.
    """
    keys = deltas.select(*map(column, key))
    untouched = base.join(F.broadcast(keys), list(key), "left_anti")
    return conform(untouched, schema).unionByName(conform(_latest(deltas, key).where(~column("_deleted")), schema))


def overwritten_aligned(
    base: DataFrame,
    merged: DataFrame,
    later: DataFrame | None,
    key: tuple[str, ...],
    schema: Schema,
    buckets: int,
    *,
    small: bool,
) -> DataFrame:
    """M(B, C(Δ, Δ₁, …)) of upserts, the first of which is in the buckets of the base.

    Args:
        base: rows of the relation before, with the columns of `schema`, read by bucket.
        merged: rows of the first delta, read by bucket.
        later: rows of the deltas after it, with their position; None if there are none.
        key: the key columns.
        schema: the relation's schema after them.
        buckets: number of buckets.
        small: whether the later deltas are so small that their keys are broadcast.
    """
    keys = merged.select(*map(column, key))
    if later is not None:
        placed = later.select(*map(column, key)).repartition(buckets, *map(column, key))
        newer = F.broadcast(later.select(*map(column, key))) if small else placed.hint("merge")
        merged = merged.join(newer, list(key), "left_anti")
        keys = keys.unionByName(placed)
    untouched = base.join(keys.hint("merge"), list(key), "left_anti")
    rows = conform(untouched, schema).unionByName(conform(merged.where(~column("_deleted")), schema))
    if later is None:
        return rows
    return rows.unionByName(conform(_latest(later, key).where(~column("_deleted")), schema))


def _latest(deltas: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Return the last row per key; unused columns are not read, as they would be in an aggregate of rows."""
    newest = F.max(column(POSITION)).over(Window.partitionBy(*map(column, key)))
    return deltas.withColumn("_newest", newest).where(column(POSITION) == column("_newest"))


def without_older(delta: DataFrame, old: DataFrame, key: Sequence[str], sequence_by: str) -> DataFrame:
    """Return the rows of a delta except those of keys whose old row has a higher value in a column.

    Args:
        delta: the rows of an upsert.
        old: rows of the relation before, with unique keys.
        key: the columns of the key.
        sequence_by: the column; null is lower than any value.
    """
    before = old.select(*map(column, key), column(sequence_by).alias("_before"))
    newer = column("_before").isNull() | F.coalesce(column(sequence_by) >= column("_before"), F.lit(False))
    return delta.join(before, list(key), "left").where(newer).drop("_before")


def _patched(deltas: DataFrame, key: tuple[str, ...], schema: Schema) -> DataFrame:
    """Return the last value per key and column; a deletion sets every column to null."""
    rows = conform(deltas, schema, ["_deleted", "_set", POSITION])
    others = _others(schema, key)
    spoken = {name: column("_deleted") | F.array_contains(column("_set"), name) for name in others}
    folded = rows.groupBy(*map(column, key)).agg(
        F.max_by(column("_deleted"), column(POSITION)).alias("_deleted"),
        *(
            F.max_by(
                F.when(spoken[name], F.struct(F.when(~column("_deleted"), column(name)).alias("value"))),
                F.when(spoken[name], column(POSITION)),
            ).alias(name)
            for name in others
        ),
    )
    named = F.array_compact(F.array(*(F.when(column(n).isNotNull(), F.lit(n)) for n in others)))
    return folded.select(
        *(
            column(n) if n in key else F.when(~column("_deleted"), column(n).getField("value")).alias(n)
            for n in schema.names
        ),
        column("_deleted"),
        F.when(~column("_deleted"), named.cast("array<string>")).alias("_set"),
    )


def _difference(old: DataFrame, new: DataFrame, schema: Schema) -> DataFrame:
    """Return the strong delta between two bags."""
    minus = old.withColumn("_weight", F.lit(-1).cast("bigint"))
    plus = new.withColumn("_weight", F.lit(1).cast("bigint"))
    return weights_added(plus.unionByName(minus), schema.names, column("_weight"))


def as_upserts(rows: DataFrame) -> DataFrame:
    """Convert rows of strong deltas over a unique key to upserts; some may be upserts already.

    Args:
        rows: rows with weights, or deletion flags, and positions. Within a delta, additions follow removals.
    """
    given = rows.columns
    gone = column("_weight") < 0
    position = column(POSITION) * 2 + F.when(column("_weight") > 0, 1).otherwise(0)
    return rows.select(
        *(column(name) for name in given if name not in ("_deleted", "_weight", POSITION)),
        (F.coalesce(column("_deleted"), gone) if "_deleted" in given else gone).alias("_deleted"),
        position.alias(POSITION),
    )


def _as_upsert(delta: DataFrame, key: tuple[str, ...], schema: Schema) -> DataFrame:
    """Convert a chained strong delta over a unique key to an upsert: the added row, or a tombstone."""
    rows = delta.groupBy(*map(column, key)).agg(
        F.max_by(F.struct(*map(column, _others(schema, key))), column("_weight")).alias("_row")
        if _others(schema, key)
        else F.lit(None).alias("_row"),
        (F.max("_weight") < 0).alias("_deleted"),
    )
    return rows.select(
        *(column(n) if n in key else column(n, "_row").alias(n) for n in schema.names), column("_deleted")
    )


def _met(base: DataFrame, delta: DataFrame, key: tuple[str, ...], strategy: Strategy = Strategy.SHUFFLED) -> DataFrame:
    """Full outer join of base `b` and delta `d` by key."""
    on = reduce(and_, (column(name, "b") == column(name, "d") for name in key))
    if strategy is Strategy.ALIGNED:
        base = base.hint("merge")
    met = base.alias("b").join(delta.alias("d"), on, "full_outer")
    return met.coalesce(1) if strategy is Strategy.TOGETHER else met  # Spark does not track that it was one partition


def _both(old: DataFrame, new: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Join as `_met`, with columns `_in_b` and `_in_d` that flag the sides that are present."""
    return _met(old.withColumn("_in_b", F.lit(1)), new.withColumn("_in_d", F.lit(1)), key)


def _differ(names: tuple[str, ...], like: DataFrame) -> Column:
    """Return whether `b` and `d` differ in any of the columns, whose types are as in `like`."""
    types = {field.name: field.dataType for field in like.schema.fields}
    pairs = ((comparable(column(n, "b"), types[n]), comparable(column(n, "d"), types[n])) for n in names)
    return any_of(~left.eqNullSafe(right) for left, right in pairs)


def _alike(one: Rows, two: Rows) -> bool:
    return Counter(map(repr, one)) == Counter(map(repr, two))


def _sets(name: str, of: str | None = None) -> Column:
    return F.coalesce(F.array_contains(column("_set", of), name), F.lit(False))


def _zeroed(name: str, of: str, schema: Schema) -> Column:
    """Return an amount, or zero of its type: next to an integer zero, decimals would lose fractional digits."""
    return F.coalesce(column(name, of), F.lit(0).cast(schema.type_of(name)))


def _any_nonzero(names: tuple[str, ...]) -> Column:
    return any_of(F.signum(column(name)) != 0 for name in names)
