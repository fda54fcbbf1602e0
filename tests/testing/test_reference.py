from __future__ import annotations

from collections import Counter
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.errors import EncodingError, KeyViolation, NotFound
from kilonova.model.encoding import (
    Append,
    Changes,
    Custom,
    Encoding,
    Increment,
    Upsert,
    delta_schema,
    optional_columns,
)
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Port, Production
from kilonova.testing.reference import (
    Bag,
    Delta,
    ReferenceChannel,
    ReferenceTask,
    ReferenceWorkflow,
    chain,
    delta_of,
    diff,
    effective,
    empty,
    from_base,
    is_empty,
    merge,
    records,
    relation_of,
    rows_of,
    strong,
    to_base,
    weak,
)
from tests.strategies import (
    APPEND,
    CHANGES,
    COLUMNS,
    ENCODINGS,
    INCREMENT,
    LARGEST,
    PLAIN,
    UPSERT,
    function_of,
    has_diff,
    histories,
    relations,
    schema_of,
)

some = settings(max_examples=50, deadline=None)
every_encoding = pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
every_built_in = pytest.mark.parametrize("encoding", [e for e in ENCODINGS if not isinstance(e, Custom)], ids=str)
every_with_diff = pytest.mark.parametrize("encoding", [e for e in ENCODINGS if has_diff(e)], ids=str)


def merged(encoding: Encoding, base: Bag, *steps: Delta) -> Bag:
    schema, function = schema_of(encoding), function_of(encoding)
    return reduce(lambda bag, step: merge(encoding, schema, bag, step, function=function), steps, base)


def chained(encoding: Encoding, first: Delta, second: Delta) -> Delta:
    return chain(encoding, schema_of(encoding), first, second, function=function_of(encoding))


@every_encoding
@some
@given(data=st.data())
def test_chain_is_associative(encoding: Encoding, data: st.DataObject) -> None:
    _, (one, two, three) = data.draw(histories(encoding))
    left = chained(encoding, chained(encoding, one, two), three)
    assert left == chained(encoding, one, chained(encoding, two, three))


@every_encoding
@some
@given(data=st.data())
def test_merging_twice_is_merging_the_chain(encoding: Encoding, data: st.DataObject) -> None:
    base, (one, two, _) = data.draw(histories(encoding))
    assert merged(encoding, base, one, two) == merged(encoding, base, chained(encoding, one, two))


@every_encoding
@some
@given(data=st.data())
def test_the_empty_delta_is_neutral(encoding: Encoding, data: st.DataObject) -> None:
    base, (one, _, _) = data.draw(histories(encoding))
    nothing = empty(encoding)
    assert is_empty(nothing)
    assert merged(encoding, base, nothing) == base
    assert chained(encoding, nothing, one) == chained(encoding, one, nothing) == one


@every_with_diff
@some
@given(data=st.data())
def test_merge_and_diff_are_inverse(encoding: Encoding, data: st.DataObject) -> None:
    old, new = data.draw(relations(encoding)), data.draw(relations(encoding))
    schema, function = schema_of(encoding), function_of(encoding)
    change = diff(encoding, schema, old, new, function=function)
    assert merged(encoding, old, change) == new
    assert is_empty(change) == (old == new)
    assert effective(encoding, schema, change, old, function=function) == change


@every_built_in
@some
@given(data=st.data())
def test_a_base_is_the_delta_from_nothing(encoding: Encoding, data: st.DataObject) -> None:
    base, (one, _, _) = data.draw(histories(encoding))
    schema = schema_of(encoding)
    nothing: Bag = Counter()
    assert from_base(encoding, schema, base) == diff(encoding, schema, nothing, base)
    assert to_base(encoding, schema, from_base(encoding, schema, base)) == base
    if not isinstance(encoding, Changes):
        assert to_base(encoding, schema, one) == merge(encoding, schema, nothing, one)


@some
@given(data=st.data())
def test_append_cannot_say_that_rows_vanish(data: st.DataObject) -> None:
    old, (more, _, _) = data.draw(histories(APPEND))
    new = merged(APPEND, old, more)
    assert merged(APPEND, old, diff(APPEND, PLAIN, old, new)) == new
    if more:
        with pytest.raises(EncodingError):
            diff(APPEND, PLAIN, new, old)


@every_encoding
@some
@given(data=st.data())
def test_weak_and_strong_deltas_do_the_same(encoding: Encoding, data: st.DataObject) -> None:
    old, (one, _, _) = data.draw(histories(encoding))
    schema, function = schema_of(encoding), function_of(encoding)
    new = merged(encoding, old, one)
    change = strong(encoding, schema, one, old, function=function)
    assert merge(Changes(), schema, old, change) == new
    if encoding != LARGEST:
        back = weak(encoding, schema, change, old, function=function)
        assert merged(encoding, old, back) == new
        assert strong(encoding, schema, back, old, function=function) == change


@every_encoding
@some
@given(data=st.data())
def test_the_effective_part_has_the_whole_effect(encoding: Encoding, data: st.DataObject) -> None:
    old, (one, _, _) = data.draw(histories(encoding))
    schema, function = schema_of(encoding), function_of(encoding)
    part = effective(encoding, schema, one, old, function=function)
    assert merged(encoding, old, part) == merged(encoding, old, one)
    assert is_empty(part) == (merged(encoding, old, one) == old)
    assert effective(encoding, schema, part, old, function=function) == part


@every_encoding
@some
@given(data=st.data())
def test_a_block_gives_its_delta_back(encoding: Encoding, data: st.DataObject) -> None:
    _, (one, _, _) = data.draw(histories(encoding))
    schema = schema_of(encoding)
    rows = rows_of(encoding, schema, one)
    assert delta_of(encoding, schema, rows) == delta_of(encoding, schema, reversed(rows)) == one
    for row in rows:
        assert set(row) == set(delta_schema(encoding, schema).names)


@every_encoding
@some
@given(data=st.data())
def test_relations_and_rows_convert(encoding: Encoding, data: st.DataObject) -> None:
    base = data.draw(relations(encoding))
    assert relation_of(encoding, schema_of(encoding), records(schema_of(encoding), base)) == base


@every_encoding
@some
@given(data=st.data())
def test_rows_without_control_columns_are_put(encoding: Encoding, data: st.DataObject) -> None:
    base = data.draw(relations(encoding))
    schema = schema_of(encoding)
    delta = delta_of(encoding, schema, records(schema, base))
    if not isinstance(encoding, Custom):
        assert delta == from_base(encoding, schema, base)
    assert {"_deleted", "_weight", "_set"} & set(delta_schema(encoding, schema).names) <= set(
        optional_columns(encoding, schema)
    )


class TestExamples:
    def test_a_patch_of_an_absent_key_leaves_the_rest_null(self) -> None:
        delta = delta_of(COLUMNS, PLAIN, [{"id": 1, "n": 5}])
        assert delta == {(1,): {"n": 5}}
        assert merge(COLUMNS, PLAIN, Counter(), delta) == Counter([(None, 1, 5)])
        assert merge(COLUMNS, PLAIN, Counter([("a", 1, 2)]), delta) == Counter([("a", 1, 5)])

    def test_a_patch_after_a_deletion_forgets_what_was_there(self) -> None:
        delta = chain(COLUMNS, PLAIN, {(1,): None}, {(1,): {"n": 5}})
        assert delta == {(1,): {"note": None, "n": 5}}
        assert merge(COLUMNS, PLAIN, Counter([("a", 1, 2)]), delta) == Counter([(None, 1, 5)])

    def test_set_says_which_nulls_count(self) -> None:
        row = {"note": None, "id": 1, "n": 7}
        assert delta_of(COLUMNS, PLAIN, [row | {"_set": ["note"]}]) == {(1,): {"note": None}}
        assert delta_of(COLUMNS, PLAIN, [row | {"_set": None}]) == {(1,): {"note": None, "n": 7}}
        assert delta_of(COLUMNS, PLAIN, [{"id": 1, "_set": []}]) == {(1,): {}}
        with pytest.raises(EncodingError):
            delta_of(COLUMNS, PLAIN, [row | {"_set": ["other"]}])

    def test_amounts_of_zero_vanish(self) -> None:
        encoding, schema = Increment(("id",), ("n",)), Schema.of(("id", "int"), ("n", "bigint"))
        rows = [{"id": 1, "n": 2}, {"id": 1, "n": -2}, {"id": 2, "n": None}, {"id": 3, "n": 1}]
        assert delta_of(encoding, schema, rows) == {(3,): (1,)}
        assert merge(encoding, schema, Counter([(3, -1), (4, 1)]), {(3,): (1,)}) == Counter([(4, 1)])

    def test_weights_of_a_row_add_up(self) -> None:
        row = {"note": None, "id": 1, "n": 7}
        rows = [row, row | {"_weight": -3}, row | {"id": 2, "_weight": 0}]
        assert delta_of(CHANGES, PLAIN, rows) == {(None, 1, 7): -2}

    def test_what_is_not_there_cannot_be_taken_away(self) -> None:
        with pytest.raises(EncodingError):
            merge(CHANGES, PLAIN, Counter([("a", 1, 1)]), {("a", 1, 1): -2})

    def test_changes_must_keep_a_key_unique(self) -> None:
        with pytest.raises(KeyViolation):
            merge(Changes(("id",)), PLAIN, Counter([("a", 1, 1)]), {("b", 1, 1): 1})

    @pytest.mark.parametrize("encoding", [UPSERT, COLUMNS, INCREMENT, Changes(("id",)), LARGEST], ids=str)
    def test_null_keys_are_refused(self, encoding: Encoding) -> None:
        record: dict[str, Any] = dict.fromkeys(schema_of(encoding).names, 1) | {"id": None}
        with pytest.raises(KeyViolation):
            delta_of(encoding, schema_of(encoding), [record])
        with pytest.raises(KeyViolation):
            relation_of(encoding, schema_of(encoding), [record])

    @pytest.mark.parametrize("encoding", [UPSERT, COLUMNS], ids=str)
    def test_a_delta_speaks_of_a_key_once(self, encoding: Encoding) -> None:
        with pytest.raises(KeyViolation):
            delta_of(encoding, PLAIN, [{"id": 1, "n": 1}, {"id": 1, "_deleted": True}])

    def test_a_custom_function_stays_with_its_key(self) -> None:
        class Shift:
            def merge(self, base_rows: list[Any], delta_rows: list[Any]) -> list[Any]:
                return [row | {"id": row["id"] + 1} for row in delta_rows]

            def chain(self, first_rows: list[Any], second_rows: list[Any]) -> list[Any]:
                return second_rows

        encoding = Custom(("id",), "shift")
        with pytest.raises(EncodingError, match="another key"):
            merge(encoding, PLAIN, Counter(), Counter([("a", 1, 1)]), function=Shift())
        with pytest.raises(EncodingError, match="no diff"):
            diff(encoding, PLAIN, Counter(), Counter([("a", 1, 1)]), function=Shift())


class TestChannel:
    def test_points_become_visible_in_the_order_of_reservation(self) -> None:
        channel = ReferenceChannel("c", PLAIN, Append())
        first, second, third = channel.reserve(), channel.reserve(), channel.reserve()
        channel.write(second, part=Counter([("b", 2, 2)]))
        assert channel.readable == 0
        channel.write(first, part=Counter([("a", 1, 1)]))
        assert channel.readable == 2
        channel.write(third)
        assert channel.readable == 3
        assert channel.same(2, 3)
        assert not channel.same(1, 3)
        assert channel.at(3) == channel.at(2) == Counter([("a", 1, 1), ("b", 2, 2)])
        assert channel.delta(1, 3) == Counter([("b", 2, 2)])

    def test_a_whole_relation_replaces_what_was_there(self) -> None:
        channel = ReferenceChannel("c", PLAIN, UPSERT)
        channel.write(channel.reserve(), part={(1,): ("a", 1, 1), (2,): ("b", 2, 2)})
        channel.write(channel.reserve(), whole=Counter([("a", 1, 1), ("c", 3, 3)]))
        assert channel.read(Mode.NEW, 1, 2) == {(2,): None, (3,): ("c", 3, 3)}
        assert channel.read(Mode.CHANGES, 1, 2) == {("b", 2, 2): -1, ("c", 3, 3): 1}
        assert channel.read(Mode.OLD, 1, 2) == channel.at(1)
        assert channel.read(Mode.INSERTS, 0, 1) == channel.at(1)
        with pytest.raises(EncodingError):
            channel.read(Mode.INSERTS, 1, 2)


# A sample workflow: words arrive, are filtered, counted, de-duplicated and joined with their languages

WORDS = Schema.of(("word", "string"), ("lang", "int"))
LANGUAGES = Schema.of(("lang", "int"), ("name", "string"))
COUNTS = Schema.of(("lang", "int"), ("n", "bigint"))
JOINED = Schema.of(("word", "string"), ("lang", "int"), ("name", "string"))
SEEN = Schema.of(("word", "string"))


def known(words: Bag) -> Bag:
    return Counter({row: n for row, n in words.items() if row[0] is not None})


def counts(known: Delta) -> Delta:
    sums: Counter[Any] = Counter()
    for (_, lang), n in known.items():
        sums[lang] += n
    return {(lang,): (n,) for lang, n in sums.items() if n}


def joined(new: Delta, old: Bag, changes: Delta, before: Bag) -> Delta:
    """NEW ⋈ OLD ∪ OLD ⋈ NEW ∪ NEW ⋈ NEW, with weights."""
    result: Counter[Any] = Counter()
    for left, right in ((new, before), (old, changes), (new, changes)):
        for (word, lang), n in left.items():
            for (other, name), m in right.items():
                if lang == other:
                    result[word, lang, name] += n * m
    return {row: n for row, n in result.items() if n}


def dedupe(known: Bag, seen: Bag) -> dict[str, Delta]:
    words = {word for word, _ in known} - {word for (word,) in seen}
    return {"unique": Counter((word,) for word in words), "seen": {(word,): (word,) for word in words}}


def total(counts: Bag) -> Bag:
    return Counter([(sum(n for _, n in counts.elements()),)])


def sample() -> ReferenceWorkflow:
    delta = Production.DELTA

    def task(name: str, writes: tuple[str, ...], production: Production, function: Any, **ports: Any) -> Any:
        bound = tuple(Port(port, channel, mode) for port, (channel, mode) in ports.items())
        return ReferenceTask(
            name=name, ports=bound, writes=writes, productions=(production,) * len(writes), function=function
        )

    return ReferenceWorkflow(
        [
            ReferenceChannel("words", WORDS, Append()),
            ReferenceChannel("languages", LANGUAGES, Upsert(("lang",))),
            ReferenceChannel("known", WORDS, Append()),
            ReferenceChannel("counts", COUNTS, Increment(("lang",), ("n",))),
            ReferenceChannel("joined", JOINED, Changes()),
            ReferenceChannel("unique", SEEN, Append()),
            ReferenceChannel("seen", SEEN, Upsert(("word",))),
            ReferenceChannel("total", Schema.of(("n", "bigint")), Append()),
        ],
        [
            task("known", ("known",), delta, known, words=("words", Mode.NEW)),
            task("counts", ("counts",), delta, counts, known=("known", Mode.CHANGES)),
            task(
                "joined",
                ("joined",),
                delta,
                joined,
                new=("known", Mode.NEW),
                old=("known", Mode.OLD),
                changes=("languages", Mode.CHANGES),
                before=("languages", Mode.OLD),
            ),
            task(
                "dedupe",
                ("unique", "seen"),
                delta,
                dedupe,
                known=("known", Mode.INSERTS),
                seen=("seen", Mode.ALL),
            ),
            task("total", ("total",), Production.BASE, total, counts=("counts", Mode.ALL)),
        ],
    )


arrivals = st.tuples(st.just("words"), st.lists(st.tuples(st.sampled_from((None, "a", "b")), st.integers(0, 2))))
renames = st.tuples(
    st.just("languages"), st.dictionaries(st.integers(0, 2), st.sampled_from((None, "x", "y")), max_size=2)
)
runs = st.tuples(st.just("run"), st.sets(st.sampled_from(("known", "counts", "joined", "dedupe", "total")), min_size=1))


@some
@given(events=st.lists(st.one_of(arrivals, renames, runs), max_size=12))
def test_many_small_steps_make_what_one_big_step_makes(events: list[tuple[str, Any]]) -> None:
    workflow = sample()
    for what, value in events:
        if what == "words":
            workflow.ingest("words", Counter(value))
        elif what == "languages":
            named = {(lang,): None if name == "x" else (lang, name) for lang, name in value.items()}
            workflow.ingest("languages", named)
        else:
            workflow.run(value)
    workflow.run()
    assert workflow.run() == []
    for name, task in workflow.tasks.items():
        if name == "total" and not workflow.snapshot("counts"):
            continue  # it never ran: nothing came, which is not yet a sum of 0
        assert {channel: workflow.snapshot(channel) for channel in task.writes} == workflow.recomputed(name)


class TestWorkflow:
    def test_a_delta_that_changes_nothing_is_not_published(self) -> None:
        workflow = sample()
        assert workflow.ingest("languages", {(1,): (1, "x")})
        assert not workflow.ingest("languages", {(1,): (1, "x"), (2,): None})
        assert workflow.channels["languages"].same(1, 2)
        assert workflow.run() == ["joined"]
        assert workflow.run() == []

    def test_what_changes_nothing_makes_nothing_due_downstream(self) -> None:
        workflow = sample()
        workflow.ingest("words", Counter([(None, 1)]))
        assert workflow.run() == ["known"]

    def test_a_task_with_only_all_ports_waits_for_a_change(self) -> None:
        workflow = sample()
        workflow.ingest("words", Counter([("a", 1)]))
        assert workflow.run() == ["known", "counts", "joined", "dedupe", "total"]
        assert workflow.snapshot("total") == Counter([(1,)])
        workflow.ingest("words", Counter([(None, 1)]))
        assert workflow.run() == ["known"]

    def test_beside_a_port_that_advances_a_lookup_table_makes_nothing_due(self) -> None:
        def tagged(words: Bag, languages: Bag) -> Delta:
            names: dict[Any, Any] = dict(languages.elements())
            return {(word, lang, names.get(lang)): n for (word, lang), n in words.items()}

        ports = (Port("words", "words", Mode.NEW), Port("languages", "languages", Mode.ALL))
        task = ReferenceTask(
            name="tagged", ports=ports, writes=("tagged",), productions=(Production.DELTA,), function=tagged
        )
        channels = [sample().channels[name] for name in ("words", "languages")]
        workflow = ReferenceWorkflow([*channels, ReferenceChannel("tagged", JOINED, Changes())], [task])
        workflow.ingest("languages", {(1,): (1, "x")})
        assert workflow.run() == []
        workflow.ingest("words", Counter([("a", 1)]))
        assert workflow.run() == ["tagged"]
        workflow.ingest("languages", {(1,): (1, "y")})
        assert workflow.run() == []
        assert workflow.snapshot("tagged") == Counter([("a", 1, "x")])
        assert workflow.recomputed("tagged") == {"tagged": Counter([("a", 1, "y")])}

    def test_a_failed_run_leaves_nothing_behind(self) -> None:
        workflow = sample()
        workflow.ingest("words", Counter([("a", 1)]))
        good = workflow.tasks["total"]

        def fail(counts: Bag) -> Bag:
            raise ValueError("no")

        workflow.tasks["total"] = ReferenceTask(
            name="total", ports=good.ports, writes=good.writes, productions=good.productions, function=fail
        )
        before = {name: list(channel.points) for name, channel in workflow.channels.items()}
        with pytest.raises(ValueError, match="no"):
            workflow.run()
        assert {name: channel.points for name, channel in workflow.channels.items()} == before
        assert workflow.cursors == {}
        workflow.tasks["total"] = good
        assert workflow.run() == ["known", "counts", "joined", "dedupe", "total"]

    def test_an_unknown_task_is_named(self) -> None:
        with pytest.raises(NotFound, match="Did you mean counts"):
            sample().run(["count"])
