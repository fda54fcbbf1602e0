"""Channels and tasks as registered, with every logic version."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from kilonova.catalog import bindings, channel_registry, channel_store, registry, task_graph
from kilonova.catalog.database import Catalog, Transaction
from kilonova.errors import BrokenInvariant, NotFound
from kilonova.model.binding import Binding
from kilonova.model.encoding import Append, Changes, Columns, Custom, Encoding, Increment, Upsert
from kilonova.model.logic import Function
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Production, Task
from kilonova.model.version import Reflection, Version
from tests.catalog.building import SCHEMA, a_channel, a_function_variant, a_task, begin, with_channels
from tests.databases import contents, rows

WIDE = Schema.of(("id", "bigint"), ("naïve “ñame”", "struct<a:int,b:array<string>>"), ("n", "decimal(38,18)"))


@pytest.mark.parametrize(
    ("encoding", "schema"),
    [
        (Append(), WIDE),
        (Append(), None),
        (Upsert(("id", "naïve “ñame”")), WIDE),
        (Changes(), WIDE),
        (Changes(("id",)), WIDE),
        (Increment(("id",), ("n",)), Schema.of(("id", "bigint"), ("n", "bigint"))),
        (Columns(("id",)), WIDE),
        (Custom(("id",), "latest_0123"), WIDE),
    ],
    ids=str,
)
def test_channels_come_back_as_they_were_declared(catalog: Catalog, encoding: Encoding, schema: Schema | None) -> None:
    declared = a_channel("c", encoding, schema)
    with catalog.writing() as tx:
        channel_registry.add_channels(tx, [declared], "w")
    with catalog.reading() as tx:
        assert channel_store.channel(tx, "c") == declared
        assert channel_registry.channel_owners(tx) == {"c": "w"}
    other = a_channel("c", Append(), SCHEMA)
    with catalog.writing() as tx:
        channel_registry.change_channel(tx, other)
    with catalog.reading() as tx:
        assert channel_store.channel(tx, "c") == other


def test_versions_come_back_as_they_were_written(catalog: Catalog) -> None:
    with_channels(catalog, "c")
    version = Version.of(
        {
            ("a", "t", "u"): (Reflection((0, 1), 3, 7), Reflection((2**31 - 1, -1), 8, 8)),
            ("b", "u"): (Reflection((1,), 1, 1),),
        }
    )
    with catalog.writing() as tx:
        _, points = begin(tx, "c")
        channel_store.fill_point(tx, "c", points["c"], version)
        channel_store.mark_changed(tx, [channel_store.channel_id(tx, "c")])
    with catalog.reading() as tx:
        assert channel_store.channel_state(tx, "c").version(1) == version


def test_no_point_is_filled_with_a_version_that_precedes_an_earlier_one(catalog: Catalog) -> None:
    with_channels(catalog, "c")

    def fill(version: Version) -> None:
        with catalog.writing() as tx:
            _, points = begin(tx, "c")
            channel_store.fill_point(tx, "c", points["c"], version)

    def reflecting(point: int, logic: int) -> Version:
        return Version.source("a", point).through("t", logic)

    fill(reflecting(3, 0))
    fill(reflecting(2, 1))  # neither precedes the other: the frontier holds both
    for behind in (reflecting(2, 0), reflecting(1, 1)):
        with pytest.raises(BrokenInvariant, match="the channel would go back") as raised:
            fill(behind)
        assert raised.value.channel == "c"
    fill(reflecting(3, 1))
    with pytest.raises(BrokenInvariant, match=r"from a›t 3\[1\] to a›t 3\[0\]"):
        fill(reflecting(3, 0))


def test_a_point_that_is_filled_after_a_later_one_does_not_go_back(catalog: Catalog) -> None:
    with_channels(catalog, "c")
    with catalog.writing() as tx:
        numbers = [begin(tx, "c")[1]["c"] for _ in range(2)]
        for number in reversed(numbers):
            channel_store.fill_point(tx, "c", number, Version.source("c", number))


def test_unknown_channels_are_named_with_a_proposal(catalog: Catalog) -> None:
    with_channels(catalog, "clicks")
    with catalog.reading() as tx:
        for look in (channel_store.channel_state, channel_store.channel, channel_store.channel_id):
            with pytest.raises(NotFound, match="Did you mean clicks"):
                look(tx, "cilcks")
        with pytest.raises(NotFound):
            channel_store.channel_states(tx, ["clicks", "other"])


def test_every_logic_version_stays_whole(catalog: Catalog) -> None:
    with_channels(catalog, "a", "b", "c")
    pickled = bytes(range(256)) * 10
    versions = [
        a_task("c", {"a": Mode.NEW}, ("c",), text="SELECT 1"),
        a_task("c", {"a": Mode.NEW, "b": Mode.ALL}, ("c",), text="SELECT 'ü\n'"),
        a_task("c", {"a": Mode.NEW}, ("c",), more=(a_function_variant("batch", {"a": Mode.ALL}, pickled),)),
        a_task("c", {"b": Mode.CHANGES}, ("c", "b")),
    ]
    for number, task in enumerate(versions):
        for _ in range(2):
            with catalog.writing() as tx:
                assert registry.put_task(tx, task, "w") == number
        with catalog.reading() as tx:
            assert registry.tasks(tx)["c"].task == task
            assert registry.tasks(tx)["c"].logic == number
    with catalog.reading() as tx:
        assert [registry.logic_version(tx, "c", number) for number in range(4)] == versions
        with pytest.raises(NotFound, match="no logic version 4"):
            registry.logic_version(tx, "c", 4)
        with pytest.raises(NotFound, match="Did you mean"):
            registry.logic_version(tx, "cc", 0)


@pytest.mark.parametrize("productions", list(itertools.product(Production, repeat=2)))
def test_productions_of_each_output_are_read_back_unchanged(
    catalog: Catalog, productions: tuple[Production, ...]
) -> None:
    task = a_task("a", {"source": Mode.NEW}, ("one", "two"))
    task = replace(task, variants=(replace(task.variants[0], productions=productions),))
    with_channels(catalog, "source", "one", "two")
    with catalog.writing() as tx:
        assert registry.put_task(tx, task, "w") == registry.put_task(tx, task, "w") == 0
        assert registry.tasks(tx)["a"].task == registry.logic_version(tx, "a", 0) == task


def test_a_logic_version_can_be_renewed_without_a_difference(catalog: Catalog) -> None:
    with_channels(catalog, "a", "b")
    task = a_task("b", {"a": Mode.NEW}, ("b",))
    with catalog.writing() as tx:
        assert registry.put_task(tx, task, "w") == 0
        assert registry.put_task(tx, task, "w", renew=True) == 1
        assert registry.logic_version(tx, "b", 0) == registry.logic_version(tx, "b", 1) == task


def _put_binding(tx: Transaction) -> None:
    bindings.put(tx, "w", [Binding(name="b", tasks=("b", "c"), implicit=True)])


FOLLOWER = a_task("c", {"b": Mode.CHANGES}, ("c",))
CHANGED = a_task("b", {"a": Mode.NEW}, ("b",), text="SELECT 2")


@pytest.mark.parametrize(
    "change",
    [
        lambda tx: registry.put_task(tx, FOLLOWER, "w"),
        lambda tx: registry.put_tasks(tx, [FOLLOWER], "w"),
        lambda tx: registry.put_task(tx, CHANGED, "w"),
        lambda tx: registry.add_version(tx, CHANGED),
        lambda tx: registry.continue_versions(tx, {"b": 7}),
        lambda tx: registry.update_sources(tx, [replace(CHANGED, written="SELECT two")]),
        lambda tx: registry.drop_task(tx, "b"),
        lambda tx: registry.move_cursors(tx, "b", 0, [("a", 3)]),
        _put_binding,
    ],
)
def test_what_a_process_has_cached_is_read_again_once_another_process_has_changed_it(
    catalog: Catalog, change: Callable[[Transaction], object]
) -> None:
    def known(process: Catalog) -> str:
        with process.reading() as tx:
            names = registry.task_names(tx)
            own = registry.live_versions(tx, names), bindings.tasks_of(tx, "b"), bindings.implicit_among(tx, ["b"])
            return repr((*own, registry.live_versions(tx), sorted(task_graph.followed_channels(tx, ["a", "b"]))))

    with_channels(catalog, "a", "b", "c")
    with catalog.writing() as tx:
        registry.put_task(tx, a_task("b", {"a": Mode.NEW}, ("b",)), "w")
    before = known(catalog)
    other = Catalog(catalog.url, catalog.clock)
    with other.rehearsing() as tx:
        change(tx)
    assert known(catalog) == before
    with other.writing() as tx:
        change(tx)
    assert known(catalog) == known(Catalog(catalog.url, catalog.clock)) != before


def test_cursors_belong_to_a_logic_version(catalog: Catalog) -> None:
    with_channels(catalog, "a", "b")
    task = a_task("b", {"a": Mode.NEW}, ("b",))
    with catalog.writing() as tx:
        registry.put_task(tx, task, "w")
        registry.move_cursors(tx, "b", 0, [("a", 3)])
        known = registry.tasks(tx)["b"]
        assert (known.cursor("a"), known.started) == (3, True)
        registry.move_cursors(tx, "b", 0, [("a", 5)])
        assert registry.tasks(tx)["b"].cursor("a") == 5
        registry.put_task(tx, task, "w", renew=True)
        known = registry.tasks(tx)["b"]
        assert (known.logic, known.cursor("a"), known.started) == (1, 0, False)


def test_live_versions_of_a_task_have_cursors_of_their_own(catalog: Catalog) -> None:
    with_channels(catalog, "a", "b", "c")
    first = a_task("b", {"a": Mode.NEW}, ("b",))
    second = a_task("b", {"a": Mode.NEW, "c": Mode.ALL}, ("b",), text="SELECT 2")
    with catalog.writing() as tx:
        registry.put_task(tx, first, "w")
        registry.move_cursors(tx, "b", 0, [("a", 3)])
        assert registry.add_version(tx, second) == 1
        registry.move_cursors(tx, "b", 1, [("a", 1), ("c", 2)])
        registry.move_cursors(tx, "b", 0, [("a", 4)])
    with catalog.reading() as tx:
        (found,) = registry.live_versions(tx, ["b"]).values()
        assert [(each.logic, each.task, each.cursors) for each in found] == [
            (1, second, {"a": 1, "c": 2}),
            (0, first, {"a": 4}),
        ]
        assert registry.tasks(tx) == {"b": found[0]}
        assert task_graph.readers(tx, "a") == found
        assert task_graph.readers(tx, "c") == found[:1]
        assert task_graph.writers(tx, ["b"]) == {"b": ("b",)}


def test_of_earlier_versions_the_last_that_ran_is_kept_until_the_new_one_runs(catalog: Catalog) -> None:
    with_channels(catalog, "a", "b")
    tasks = [a_task("b", {"a": Mode.NEW}, ("b",), text=f"SELECT {number}") for number in range(3)]
    with catalog.writing() as tx:
        registry.put_task(tx, tasks[0], "w")
        registry.add_version(tx, tasks[1])
        for logic in (0, 1):
            registry.move_cursors(tx, "b", logic, [("a", 3)])
        assert registry.put_task(tx, tasks[2], "w") == 2
        registry.move_cursors(tx, "b", 1, [("a", 4)])
        live = registry.live_versions(tx)["b"]
        assert [(each.logic, each.cursors, each.superseded) for each in live] == [(2, {}, False), (1, {"a": 4}, True)]
        assert len(rows(tx, "cursor")) == 1
        registry.move_cursors(tx, "b", 2, [("a", 4)])
        assert [(each.logic, each.cursors) for each in registry.live_versions(tx)["b"]] == [(2, {"a": 4})]
        assert len(rows(tx, "cursor")) == 1
        assert [registry.logic_version(tx, "b", number) for number in range(3)] == tasks


def test_a_task_has_cursors_on_what_it_reads_and_none_once_it_is_dropped(catalog: Catalog) -> None:
    with_channels(catalog, "a", "b", "c")
    task = a_task("c", {"a": Mode.NEW, "b": Mode.NEW}, ("c",))
    with catalog.writing() as tx:
        registry.put_task(tx, task, "w")
        registry.move_cursors(tx, "c", 0, [("a", 3), ("b", 1)])
        registry.move_cursors(tx, "c", 0, [("a", 4)])
        assert registry.tasks(tx)["c"].cursors == {"a": 4}
        registry.drop_task(tx, "c")
        registry.move_cursors(tx, "c", 0, [("a", 5)])
        registry.put_task(tx, task, "w")
        assert not registry.tasks(tx)["c"].started


def test_a_dropped_task_can_be_declared_again_and_starts_from_scratch(catalog: Catalog) -> None:
    with_channels(catalog, "a", "b")
    task = a_task("b", {"a": Mode.NEW}, ("b",))
    with catalog.writing() as tx:
        registry.put_task(tx, task, "w")
        registry.move_cursors(tx, "b", 0, [("a", 3)])
        assert task_graph.writers(tx, ["b"]) == {"b": ("b",)}
        registry.drop_task(tx, "b")
        assert registry.tasks(tx) == {}
        assert task_graph.writers(tx, ["b"]) == {"b": ()}
        assert registry.logic_version(tx, "b", 0) == task
        registry.put_task(tx, task, "v")
        known = registry.tasks(tx)["b"]
        assert (known.task, known.workflow, known.started) == (task, "v", False)


def test_functions_of_custom_encodings_are_kept_once(catalog: Catalog) -> None:
    function = Function(pickled=b"\x00\xff", source="class Latest: ...")
    with catalog.writing() as tx:
        registry.put_function(tx, "latest_1", function)
    before = contents(catalog)
    with catalog.writing() as tx:
        registry.put_function(tx, "latest_1", function)
        assert registry.function(tx, "latest_1") == function
        with pytest.raises(NotFound):
            registry.function(tx, "latest_2")
    assert contents(catalog) == before


def test_many_tasks_come_back_each_with_its_own_variants(catalog: Catalog) -> None:
    names = [f"t{number}" for number in range(12)]
    with_channels(catalog, "source", *names)
    declared: dict[str, Task] = {}
    with catalog.writing() as tx:
        for number, name in enumerate(names):
            more = tuple(a_function_variant(f"v{i}", {"source": Mode.ALL}, bytes([i])) for i in range(number % 3))
            declared[name] = a_task(name, {"source": Mode.NEW}, (name,), text=name, more=more)
            registry.put_task(tx, declared[name], "w")
    with catalog.reading() as tx:
        assert {name: known.task for name, known in registry.tasks(tx).items()} == declared
