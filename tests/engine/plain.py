"""A workflow on plain files: the engine's frame with everything but Spark, step by step.

`source` is an append channel; the task `copied` takes over what is new in it, and the task `counted` writes how
many rows there are, in the same run. `mirror` shares blocks of `source`. Rows are integers; a block is a directory of
two JSON files.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import assert_never

from kilonova.catalog import channel_registry, channel_store, registry, runs
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.files import ReadyFile
from kilonova.catalog.planner_input import load_planner_input
from kilonova.catalog.read_models import run_queries
from kilonova.engine.directory_ingest import BatchLimits, IngestPlan, ingest_batch
from kilonova.engine.directory_scan import scan_directory
from kilonova.engine.garbage import GCReport, collect_garbage
from kilonova.engine.run_events import no_listener
from kilonova.engine.run_protocol import ActiveRun, RunEnvironment, RunPlan, RunResults, execute_run
from kilonova.engine.run_recovery import delete_doomed_blocks
from kilonova.errors import InputError, StorageFailed
from kilonova.model.block import Base, Block, BlockName, Delta, Kind, Statistics
from kilonova.model.channel import Channel, ChannelState
from kilonova.model.encoding import Append
from kilonova.model.logic import Sql
from kilonova.model.read_plan import ChangesRead, DeltaRead, DiffRead, ReadPlan, SnapshotRead
from kilonova.model.run import RunInput, RunKind, RunOutput
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Port, Production, Task, Variant
from kilonova.model.version import Version
from kilonova.model.watched_directory import WatchedDirectory
from kilonova.schedule.due import due_reason, due_tasks
from kilonova.schedule.planning import choose, output_version, port_inputs
from kilonova.warehouse.storage import Storage
from tests.databases import rows as rows_of_table

SCHEMA = Schema.of(("id", "bigint"))
LEASE = timedelta(seconds=600)

COPIED = Task(
    name="copied",
    writes=("copied",),
    variants=(
        Variant(
            name="copied",
            ports=(Port("source", "source", Mode.NEW),),
            productions=(Production.DELTA,),
            logic=Sql(text="copy"),
            fingerprint="copy",
        ),
    ),
)
COUNTED = Task(
    name="counted",
    writes=("counted",),
    variants=(
        Variant(
            name="counted",
            ports=(Port("copied", "copied", Mode.ALL),),
            productions=(Production.BASE,),
            logic=Sql(text="count"),
            fingerprint="count",
        ),
    ),
)


class Killed(BaseException):
    """The process is no more: nothing that it would do from here on happens."""


@dataclass
class Fuse:
    """Counts the steps of a process, and does something once, before one of them.

    Attributes:
        burns: before which step; None for never.
        action: what happens then; None kills the process.
        steps: the steps so far.
    """

    burns: int | None = None
    action: Callable[[], None] | None = None
    steps: list[str] = field(default_factory=list)
    burnt: bool = False

    def step(self, name: str, *, open_transaction: bool = False) -> None:
        if self.burnt and self.action is None:
            raise Killed(name)
        if self.action is not None and open_transaction:
            return  # nobody else gets in between
        self.steps.append(name)
        if not self.burnt and self.burns is not None and len(self.steps) > self.burns:
            self.burnt = True
            if self.action is None:
                raise Killed(name)
            self.action()


class MortalCatalog(Catalog):
    """A catalog whose process may die before, in and after each transaction."""

    fuse: Fuse

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        if self.fuse.action is not None:  # to die before reading is to die after the step before
            self.fuse.step("before reading")
        elif self.fuse.burnt:
            raise Killed
        with super().reading() as tx:
            yield tx

    @contextmanager
    def writing(self, *, brief: bool = False) -> Iterator[Transaction]:
        self.fuse.step("before a transaction")
        with super().writing(brief=brief) as tx:
            yield tx
            self.fuse.step("before its commit", open_transaction=True)
        self.fuse.step("after its commit")


class MortalStorage(Storage):
    """A warehouse whose process may die before, in and after each deletion."""

    def __init__(self, root: Path, fuse: Fuse) -> None:
        super().__init__(str(root))
        self.root = root
        self.fuse = fuse

    def delete(self, blocks: Iterable[BlockName]) -> None:
        for block in blocks:
            self.fuse.step(f"before deleting block {block.number}")
            for file in sorted(self.root.glob(f"{block.directory}/*"))[:1]:
                file.unlink()
            self.fuse.step(f"amid deleting block {block.number}")
            super().delete([block])
            self.fuse.step(f"after deleting block {block.number}")

    def seal(self, block: BlockName, manifest: str) -> None:
        self.fuse.step(f"before the manifest of block {block.number}")
        super().seal(block, manifest)

    def write(self, name: BlockName, rows: list[int]) -> None:
        folder, block = self.root / name.directory, name.number
        for part, half in enumerate((rows[::2], rows[1::2])):
            self.fuse.step(f"before file {part} of block {block}")
            folder.mkdir(exist_ok=True)  # as Spark does, though somebody has deleted it
            text = json.dumps(half)
            with (folder / f"part-{part}.json").open("w") as file:
                file.write(text[:1])
                file.flush()
                self.fuse.step(f"amid file {part} of block {block}")
                file.write(text[1:])
        self.fuse.step(f"after block {block}")

    def rows(self, block: Block) -> Counter[int]:
        files = sorted((self.root / block.name.directory).glob("part-*.json"))
        try:
            found = Counter(row for file in files for row in json.loads(file.read_text()))
        except json.JSONDecodeError:
            found = Counter()
        if (len(files), found.total()) != (block.statistics.files, block.statistics.rows):
            raise StorageFailed("the block is not whole", path=self.path(block.name))
        return found


def declare(catalog: Catalog) -> None:
    """Register the workflow."""
    with catalog.writing() as tx:
        for name in ("source", "copied", "counted", "mirror"):
            watch = WatchedDirectory(location="inbox", settle_time=0) if name == "source" else None
            channel_registry.add_channels(tx, [Channel(name=name, schema=SCHEMA, encoding=Append(), watch=watch)], "w")
        registry.put_task(tx, COPIED, "w")
        registry.put_task(tx, COUNTED, "w")


@dataclass
class Process:
    """One process at work on the workflow."""

    environment: RunEnvironment
    storage: MortalStorage

    @classmethod
    def started(cls, url: str, root: Path, clock: Callable[..., object], fuse: Fuse | None = None) -> Process:
        fuse = fuse or Fuse()
        catalog = MortalCatalog(url, clock)  # type: ignore[arg-type]
        catalog.fuse = fuse
        storage = MortalStorage(root, fuse)
        environment = RunEnvironment(catalog=catalog, files=storage, owner="me", lease=LEASE, listener=no_listener)
        return cls(environment, storage)

    @property
    def catalog(self) -> Catalog:
        return self.environment.catalog

    def end(self) -> None:
        self.catalog.close()

    def share(self, *rows: int) -> None:
        """Ingest rows, and let another run publish their block in `mirror` before the ingest is committed."""

        def mirrored(block: Block) -> None:
            def prepare(tx: Transaction) -> RunPlan[None] | None:
                if set(rows) & set(self.relation("mirror", tx)):  # it was committed before a crash
                    return None
                return RunPlan(kind=RunKind.INGEST, tasks=(), writes=("mirror",), pins=(), plan=None)

            def work(begun: ActiveRun[None]) -> RunResults:
                assert begun.share_blocks([block.number])
                point = begun.points["mirror"]
                placed = replace(block, kind=Delta(point - 1, point))
                version = Version.source("mirror", point)
                return RunResults(inputs=(), outputs=(_output("mirror", point, placed, version, None),), advances=())

            execute_run(self.environment, prepare, work)

        self.ingest(*rows, meanwhile=mirrored)

    def ingest(self, *rows: int, meanwhile: Callable[[Block], None] = lambda block: None) -> None:
        def prepare(tx: Transaction) -> RunPlan[ChannelState]:
            channel_state = channel_store.channel_state(tx, "source")
            pins = tuple(block.number for block in channel_state.snapshot(channel_state.latest_readable).blocks)
            return RunPlan(kind=RunKind.INGEST, tasks=(), writes=("source",), pins=pins, plan=channel_state)

        def work(begun: ActiveRun[ChannelState]) -> RunResults:
            point = begun.points["source"]
            block = self._write(begun, "source", Delta(point - 1, point), list(rows))
            meanwhile(block)
            version = Version.source("source", point)
            return RunResults(inputs=(), outputs=(_output("source", point, block, version, None),), advances=())

        execute_run(self.environment, prepare, work)

    def gather(self, base: Path) -> None:
        """Look at the directory of `source`, and take its files, each of which holds a number per line."""

        def write(plan: IngestPlan, some: Sequence[ReadyFile], point: int, name: BlockName) -> Block:
            rows = []
            for one in some:
                try:
                    rows += [int(line) for line in (base / one.path).read_text().split()]
                except ValueError as error:
                    raise InputError(str(error), path=one.path) from error
            self.storage.write(name, rows)
            return _block(name, Delta(point - 1, point), rows)

        scan_directory(self.catalog, base, "source", LEASE, early=True)
        while ingest_batch(self.environment, base, "source", BatchLimits(3, 100), write):
            pass

    def run(self) -> bool:
        """Run what has something to do; whether anything had."""

        def prepare(tx: Transaction) -> RunPlan[tuple[object, ...]] | None:
            known = load_planner_input(tx)
            progress, channel_states = known.newest, known.channels
            names = tuple(state.task.name for state in due_tasks(known))
            if not names:
                return None
            pins = {
                block.number
                for name in names
                for feed in port_inputs(choose(progress[name], channel_states), channel_states)
                for block in feed.reading.blocks
            }
            for name in names:
                pins |= {block.number for block in channel_states[name].blocks}
            return RunPlan(
                kind=RunKind.TASKS,
                tasks=names,
                writes=names,
                pins=tuple(sorted(pins)),
                plan=(names, progress, channel_states),
            )

        def work(begun: ActiveRun[tuple[object, ...]]) -> RunResults:
            names, progress, found = begun.plan
            channel_states = dict(found)  # type: ignore[call-overload]
            inputs, outputs, advances = [], [], []
            for name in names:  # type: ignore[attr-defined]
                mine, point = progress[name], begun.points[name]  # type: ignore[index]
                before = channel_states[name]
                if due_reason(mine, channel_states) is None:
                    outputs.append(_output(name, point, None, before.version(before.latest_readable), name))
                    continue
                choice = choose(mine, channel_states)
                (feed,) = fed = port_inputs(choice, channel_states)
                taken = self.rows(feed.reading)
                whole = name == "counted" or not mine.started
                kind: Kind = Base(point) if whole else Delta(point - 1, point)
                made = [taken.total()] if name == "counted" else sorted(taken.elements())
                block = self._write(begun, name, kind, made)
                version = output_version(choice, fed, channel_states, name)
                outputs.append(_output(name, point, block, version, name))
                channel_states[name] = before.with_block(block, version, begun.run)
                blocks = tuple(block.number for block in feed.reading.blocks)
                channel = feed.port.channel
                inputs.append(
                    RunInput(task=name, port=channel, channel=channel, start=feed.start, end=feed.end, blocks=blocks)
                )
                points = ((channel, choice.ends[channel]),)
                advances.append(runs.Advance(task=name, logic=mine.logic, points=points))
            return RunResults(inputs=tuple(inputs), outputs=tuple(outputs), advances=tuple(advances))

        return execute_run(self.environment, prepare, work) is not None

    def compact(self, channel: str) -> None:
        def prepare(tx: Transaction) -> RunPlan[tuple[ChannelState, SnapshotRead]] | None:
            channel_state = channel_store.channel_state(tx, channel)
            snapshot = channel_state.snapshot(channel_state.latest_readable)
            if not snapshot.deltas:
                return None
            pins = tuple(block.number for block in snapshot.blocks)
            return RunPlan(kind=RunKind.COMPACTION, tasks=(), writes=(), pins=pins, plan=(channel_state, snapshot))

        def work(begun: ActiveRun[tuple[ChannelState, SnapshotRead]]) -> RunResults:
            channel_state, snapshot = begun.plan
            point = channel_state.latest_distinct
            taken = self.rows(snapshot)
            block = self._write(begun, channel, Base(point), sorted(taken.elements()))
            item = RunInput(
                task="compaction",
                port=channel,
                channel=channel,
                start=0,
                end=point,
                blocks=tuple(block.number for block in snapshot.blocks),
            )
            output = _output(channel, point, block, channel_state.version(point), "compaction")
            return RunResults(inputs=(item,), outputs=(output,), advances=())

        execute_run(self.environment, prepare, work)

    def collect(self) -> GCReport:
        return collect_garbage(self.catalog, self.storage, no_listener)

    def drop(self, channel: str) -> None:
        """What `kilonova drop` does, once it has found that nobody reads the channel."""
        with self.catalog.writing() as tx:
            if channel not in channel_store.channel_names(tx):
                return
            if channel in registry.tasks(tx):
                registry.drop_task(tx, channel)
            channel_store.drop_channel(tx, channel)
        delete_doomed_blocks(self.catalog, self.storage)

    def _write(self, begun: ActiveRun[object], channel: str, kind: Kind, rows: list[int]) -> Block:  # type: ignore[type-var]
        name = begun.name_block(channel)
        self.storage.write(name, rows)
        return _block(name, kind, rows)

    def rows(self, reading: ReadPlan) -> Counter[int]:
        """The rows of a relation, or those that a change adds."""
        match reading:
            case SnapshotRead() | DeltaRead():
                return sum((self.storage.rows(block) for block in reading.blocks), Counter[int]())
            case DiffRead(old=old, new=new):
                before, after = self.rows(old), self.rows(new)
                assert before <= after
                return after - before
            case ChangesRead():
                raise AssertionError("append is no weak delta")
            case _:
                assert_never(reading)

    def relation(self, channel: str, tx: Transaction | None = None) -> list[int]:
        with nullcontext(tx) if tx is not None else self.catalog.reading() as tx:
            channel_state = channel_store.channel_state(tx, channel)
        return sorted(self.rows(channel_state.snapshot(channel_state.latest_readable)).elements())

    def check(self) -> None:
        """What every reader may rely on, at any moment."""
        with self.catalog.reading() as tx:
            registered = registry.tasks(tx)
            found = channel_store.channel_states(tx)
        relations = {
            name: [self._known(channel_state, at) for at in range(channel_state.latest_readable + 1)]
            for name, channel_state in found.items()
        }
        newest = {name: known[-1] for name, known in relations.items()}
        assert all(known is not None for known in newest.values())
        for name, known in relations.items():
            for before, after in itertools.pairwise(known):
                assert name == "counted" or before is None or after is None or before <= after
        if "counted" not in newest:
            return
        read = found["source"], registered["copied"].cursor("source")
        if registered["copied"].started:
            past = self._known(*read)
            assert past is None or newest["copied"] == past, "a block was read twice, or never"
        else:
            assert newest["copied"] == Counter()
        total = newest["copied"].total()  # type: ignore[union-attr]
        assert newest["counted"] == (Counter([total]) if registered["counted"].started else Counter())

    def _known(self, channel_state: ChannelState, at: int) -> Counter[int] | None:
        """The relation at a point; None if it was collected."""
        from kilonova.errors import NotFound

        try:
            return self.rows(channel_state.snapshot(at))
        except NotFound:
            return None

    def check_clean(self) -> None:
        """That nothing is left over, once all runs have ended and the garbage has been collected."""
        with self.catalog.reading() as tx:
            states = channel_store.block_states(tx)
            live = sorted(name for name, state in states.items() if state == channel_store.LIVE)
            assert set(states.values()) <= {channel_store.LIVE, channel_store.GONE}
            assert rows_of_table(tx, "pin") == rows_of_table(tx, "claim") == []
            assert all(run.ended is not None for run in run_queries.runs(tx))
            for channel_state in channel_store.channel_states(tx).values():
                assert channel_state.latest_readable == channel_state.latest
        assert self.storage.blocks() == live


def _output(channel: str, point: int, block: Block | None, version: Version, task: str | None) -> RunOutput:
    return RunOutput(channel=channel, point=point, block=block, version=version, task=task, reason="", seconds=0)


def _block(name: BlockName, kind: Kind, rows: list[int]) -> Block:
    return Block(
        number=name.number,
        suffix=name.suffix,
        kind=kind,
        schema=SCHEMA,
        encoding=Append(),
        columns=SCHEMA,
        buckets=0,
        statistics=Statistics(rows=len(rows), bytes=len(rows), files=2, removals=None),
    )
