from __future__ import annotations

import pytest

from kilonova.errors import BrokenInvariant, DeclarationError
from kilonova.model.channel import Channel
from kilonova.model.encoding import Append
from kilonova.model.logic import Sql
from kilonova.model.run import RunEvent, RunState, next_state
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Port, Production, Task, Variant
from kilonova.model.workflow import WorkflowDefinition


def variant(*ports: Port, outputs: int = 1, name: str = "batch") -> Variant:
    return Variant(
        name=name, ports=ports, productions=(Production.BASE,) * outputs, logic=Sql(text="…"), fingerprint=name
    )


def task(name: str, *reads: str, writes: tuple[str, ...] | None = None) -> Task:
    ports = tuple(Port(channel, channel, Mode.ALL) for channel in reads)
    outputs = writes or (name,)
    return Task(name=name, writes=outputs, variants=(variant(*ports, outputs=len(outputs)),))


def workflow(*tasks: Task, sources: tuple[str, ...] = ("a",)) -> WorkflowDefinition:
    names = (*sources, *dict.fromkeys(channel for task in tasks for channel in task.writes))
    channels = tuple(Channel(name=name, schema=Schema.of(("x", "int")), encoding=Append()) for name in names)
    return WorkflowDefinition(name="w", channels=channels, tasks=tasks)


def writer(name: str, *ports: Port) -> Task:
    news = Variant(
        name="news",
        ports=(Port("a", "a", Mode.NEW), *ports),
        productions=(Production.DELTA,),
        logic=Sql(text="…"),
        fingerprint=name,
    )
    return Task(name=name, writes=("x",), variants=(news,))


def shared(*tasks: Task) -> WorkflowDefinition:
    """A workflow whose channel `x` may have several writers."""
    names = dict.fromkeys(["a", "x", *(channel for task in tasks for channel in task.writes)])
    channels = tuple(
        Channel(name=name, schema=Schema.of(("x", "int")), encoding=Append(), several_writers=name == "x")
        for name in names
    )
    return WorkflowDefinition(name="w", channels=channels, tasks=tasks)


class TestWorkflow:
    def test_tasks_are_ordered_by_what_they_read(self) -> None:
        made = workflow(task("d", "c", "b"), task("c", "b"), task("b", "a"))
        assert [task.name for task in made.order()] == ["b", "c", "d"]
        assert [channel.name for channel in made.sources] == ["a"]
        assert made.writers("c") == (made.tasks[1],)
        assert made.writers("a") == ()
        assert made.channel("a").name == "a"
        with pytest.raises(DeclarationError):
            made.channel("z")

    def test_a_cycle_is_refused_and_shown(self) -> None:
        with pytest.raises(DeclarationError, match=r"cycle: .*(b → c|c → b)"):
            workflow(task("b", "a", "c"), task("c", "b"))

    def test_a_task_may_read_what_it_wrote(self) -> None:
        made = workflow(task("dedupe", "a", "hashes", writes=("unique", "hashes")), task("b", "unique"))
        assert made.tasks[0].reads == ("a",)
        assert [task.name for task in made.order()] == ["dedupe", "b"]

    def test_a_dangling_port_is_refused_with_the_closest_name(self) -> None:
        with pytest.raises(DeclarationError, match=r"Did you mean flights\? \[channel fligts, task b\]"):
            workflow(task("b", "fligts"), sources=("flights",))

    def test_a_dangling_output_is_refused(self) -> None:
        channel = Channel(name="a", schema=None, encoding=Append())
        with pytest.raises(DeclarationError, match=r"there is no such channel.* \[channel b, task b\]"):
            WorkflowDefinition(name="w", channels=(channel,), tasks=(task("b", "a"),))

    def test_a_channel_has_one_writer(self) -> None:
        with pytest.raises(DeclarationError, match=r"the channel already has a writer, b\. .* \[channel b, task c\]"):
            workflow(task("b", "a"), task("c", "a", writes=("b",)))

    def test_a_channel_that_is_declared_so_has_several_writers(self) -> None:
        made = shared(writer("b"), writer("c"), task("d", "x"))
        assert [each.name for each in made.writers("x")] == ["b", "c"]
        assert [each.name for each in made.order()][-1] == "d"
        assert [each.name for each in made.downstream(made.tasks[1])] == ["d"]

    def test_among_several_writers_none_writes_a_base_or_reads_what_it_writes(self) -> None:
        base = task("c", "a", writes=("x",))
        with pytest.raises(
            DeclarationError, match=r"the variant batch writes a base, which would erase .* \[channel x, task c\]"
        ):
            shared(writer("b"), base)
        with pytest.raises(
            DeclarationError, match=r"the variant news reads the channel that it writes.* \[channel x, task c\]"
        ):
            shared(writer("b"), writer("c", Port("x", "x", Mode.ALL)))

    def test_a_cycle_through_any_writer_is_refused(self) -> None:
        with pytest.raises(DeclarationError, match="the tasks form a cycle"):
            shared(writer("b"), writer("c", Port("d", "d", Mode.NEW)), task("d", "x"))

    def test_names_occur_once(self) -> None:
        with pytest.raises(DeclarationError, match="the task is declared twice"):
            workflow(task("b", "a"), task("b", "a", writes=("c",)))
        with pytest.raises(DeclarationError, match="the channel is declared twice"):
            workflow(task("b", "a"), sources=("a", "a"))


class TestTask:
    def test_old_stands_beside_new(self) -> None:
        old = Port("old", "a", Mode.OLD)
        for mode in (Mode.NEW, Mode.CHANGES, Mode.INSERTS):
            assert variant(old, Port("new", "a", mode)).incremental
        for other in (Port("all", "a", Mode.ALL), Port("new", "b", Mode.NEW)):
            with pytest.raises(DeclarationError, match=r"the port old has the mode Old.* \[channel a\]"):
                variant(old, other)

    def test_a_variant_reads_something_through_ports_of_different_names(self) -> None:
        assert not variant(Port("x", "a", Mode.ALL)).incremental
        with pytest.raises(DeclarationError, match="must have at least one port"):
            variant()
        with pytest.raises(DeclarationError, match="a port occurs twice"):
            variant(Port("x", "a", Mode.ALL), Port("x", "b", Mode.ALL))

    def test_a_task_has_variants_and_outputs_of_different_names(self) -> None:
        one = variant(Port("x", "a", Mode.ALL))
        with pytest.raises(DeclarationError, match="no variant"):
            Task(name="t", writes=("b",), variants=())
        with pytest.raises(DeclarationError, match="two variants"):
            Task(name="t", writes=("b",), variants=(one, one))
        for writes in ((), ("b", "b")):
            with pytest.raises(DeclarationError, match="each only once"):
                Task(name="t", writes=writes, variants=(one,))

    def test_the_fingerprint_ignores_the_order_of_variants(self) -> None:
        batch = variant(Port("x", "a", Mode.ALL))
        fresh = variant(Port("x", "a", Mode.NEW), name="incremental")
        one = Task(name="t", writes=("b",), variants=(batch, fresh))
        assert one.fingerprint == Task(name="t", writes=("b",), variants=(fresh, batch)).fingerprint
        assert one.fingerprint != Task(name="t", writes=("c",), variants=(batch, fresh)).fingerprint
        assert one.fingerprint != Task(name="t", writes=("b",), variants=(batch,)).fingerprint


class TestRun:
    def test_a_running_run_ends_in_one_of_four_ways(self) -> None:
        assert [next_state(RunState.RUNNING, event) for event in RunEvent] == [
            RunState.SUCCEEDED,
            RunState.FAILED,
            RunState.CANCELLED,
            RunState.ABANDONED,
        ]

    @pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.RUNNING])
    @pytest.mark.parametrize("event", RunEvent)
    def test_an_ended_run_stays_ended(self, state: RunState, event: RunEvent) -> None:
        with pytest.raises(BrokenInvariant):
            next_state(state, event)
