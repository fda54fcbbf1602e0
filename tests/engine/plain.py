"""A workflow on plain files: the engine's frame with everything but Spark, step by step.

`source` is an append channel; the task `copied` takes over what is new in it, and the task `counted` writes how
many rows there are, in the same run. Rows are integers; a block is a directory of two JSON files.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import assert_never

from kilonova.catalog import chains, history, registry, runs
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.files import Ready
from kilonova.catalog.observation import observe
from kilonova.engine.directories import look
from kilonova.engine.gathering import Most, Plan, gather_block
from kilonova.engine.reclaim import Collected, collect_garbage, sweep
from kilonova.engine.telling import unheard
from kilonova.engine.undertaking import Begun, Prepared, Results, Workplace, carry_out
from kilonova.errors import StorageFailed, UnreadableInput
from kilonova.model.block import Base, Block, BlockName, Delta, Kind, Statistics
from kilonova.model.channel import Channel, Chronicle
from kilonova.model.directory import Directory
from kilonova.model.encoding import Append
from kilonova.model.reading import Chain, Diff, Reading, Snapshot, Strong
from kilonova.model.run import Input, Output, RunKind
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Port, Production, Sql, Task, Variant
from kilonova.model.version import Version
from kilonova.schedule.planning import choose, feeds, reflected, selected, why_due
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
    def writing(self) -> Iterator[Transaction]:
        self.fuse.step("before a transaction")
        with super().writing() as tx:
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
        for name in ("source", "copied", "counted"):
            watch = Directory(place="inbox", settle=0) if name == "source" else None
            registry.add_channels(tx, [Channel(name=name, schema=SCHEMA, encoding=Append(), watch=watch)], "w")
        registry.put_task(tx, COPIED, "w")
        registry.put_task(tx, COUNTED, "w")


@dataclass
class Process:
    """One process at work on the workflow."""

    workplace: Workplace
    storage: MortalStorage

    @classmethod
    def started(cls, url: str, root: Path, clock: Callable[..., object], fuse: Fuse | None = None) -> Process:
        fuse = fuse or Fuse()
        catalog = MortalCatalog(url, clock)  # type: ignore[arg-type]
        catalog.fuse = fuse
        storage = MortalStorage(root, fuse)
        workplace = Workplace(catalog=catalog, files=storage, owner="me", lease=LEASE, listener=unheard)
        return cls(workplace, storage)

    @property
    def catalog(self) -> Catalog:
        return self.workplace.catalog

    def end(self) -> None:
        self.catalog.close()

    def ingest(self, *rows: int) -> None:
        def prepare(tx: Transaction) -> Prepared[Chronicle]:
            chronicle = chains.chronicle(tx, "source")
            pins = tuple(block.number for block in chronicle.snapshot(chronicle.readable).blocks)
            return Prepared(kind=RunKind.INGEST, tasks=(), writes=("source",), pins=pins, plan=chronicle)

        def work(begun: Begun[Chronicle]) -> Results:
            point = begun.points["source"]
            block = self._write(begun, "source", Delta(point - 1, point), list(rows))
            version = Version.source("source", point)
            return Results(inputs=(), outputs=(_output("source", point, block, version, None),), advances=())

        carry_out(self.workplace, prepare, work)

    def gather(self, base: Path) -> None:
        """Look at the directory of `source`, and take its files, each of which holds a number per line."""

        def write(plan: Plan, some: Sequence[Ready], point: int, name: BlockName) -> Block:
            rows = []
            for one in some:
                try:
                    rows += [int(line) for line in (base / one.path).read_text().split()]
                except ValueError as error:
                    raise UnreadableInput(str(error), path=one.path) from error
            self.storage.write(name, rows)
            return _block(name, Delta(point - 1, point), rows)

        look(self.catalog, base, "source", LEASE, early=True)
        while gather_block(self.workplace, base, "source", Most(3, 100), write):
            pass

    def run(self) -> bool:
        """Run what has something to do; whether anything had."""

        def prepare(tx: Transaction) -> Prepared[tuple[object, ...]] | None:
            workflow, progress, chronicles = observe(tx)
            names = selected(workflow, progress, chronicles)
            if not names:
                return None
            pins = {
                block.number
                for name in names
                for feed in feeds(choose(progress[name], chronicles), progress[name], chronicles)
                for block in feed.reading.blocks
            }
            for name in names:
                pins |= {block.number for block in chronicles[name].blocks}
            return Prepared(
                kind=RunKind.TASKS,
                tasks=names,
                writes=names,
                pins=tuple(sorted(pins)),
                plan=(names, progress, chronicles),
            )

        def work(begun: Begun[tuple[object, ...]]) -> Results:
            names, progress, found = begun.plan
            chronicles = dict(found)  # type: ignore[call-overload]
            inputs, outputs, advances = [], [], []
            for name in names:  # type: ignore[attr-defined]
                mine, point = progress[name], begun.points[name]  # type: ignore[index]
                before = chronicles[name]
                if why_due(mine, chronicles) is None:
                    outputs.append(_output(name, point, None, before.version(before.readable), name))
                    continue
                choice = choose(mine, chronicles)
                (feed,) = fed = feeds(choice, mine, chronicles)
                taken = self.rows(feed.reading)
                whole = name == "counted" or not mine.started
                kind: Kind = Base(point) if whole else Delta(point - 1, point)
                made = [taken.total()] if name == "counted" else sorted(taken.elements())
                block = self._write(begun, name, kind, made)
                version = reflected(choice, mine, fed, chronicles, name)
                outputs.append(_output(name, point, block, version, name))
                chronicles[name] = before.with_block(block, version, begun.run)
                blocks = tuple(block.number for block in feed.reading.blocks)
                channel = feed.port.channel
                inputs.append(
                    Input(task=name, port=channel, channel=channel, start=feed.start, end=feed.end, blocks=blocks)
                )
                points = ((channel, chronicles[channel].readable),)
                advances.append(runs.Advance(task=name, logic=mine.logic, points=points))
            return Results(inputs=tuple(inputs), outputs=tuple(outputs), advances=tuple(advances))

        return carry_out(self.workplace, prepare, work) is not None

    def compact(self, channel: str) -> None:
        def prepare(tx: Transaction) -> Prepared[tuple[Chronicle, Snapshot]] | None:
            chronicle = chains.chronicle(tx, channel)
            snapshot = chronicle.snapshot(chronicle.readable)
            if not snapshot.deltas:
                return None
            pins = tuple(block.number for block in snapshot.blocks)
            return Prepared(kind=RunKind.COMPACTION, tasks=(), writes=(), pins=pins, plan=(chronicle, snapshot))

        def work(begun: Begun[tuple[Chronicle, Snapshot]]) -> Results:
            chronicle, snapshot = begun.plan
            point = chronicle.effective
            taken = self.rows(snapshot)
            block = self._write(begun, channel, Base(point), sorted(taken.elements()))
            item = Input(
                task="compaction",
                port=channel,
                channel=channel,
                start=0,
                end=point,
                blocks=tuple(block.number for block in snapshot.blocks),
            )
            output = _output(channel, point, block, chronicle.version(point), "compaction")
            return Results(inputs=(item,), outputs=(output,), advances=())

        carry_out(self.workplace, prepare, work)

    def collect(self) -> Collected:
        return collect_garbage(self.catalog, self.storage, unheard)

    def drop(self, channel: str) -> None:
        """What `kilonova drop` does, once it has found that nobody reads the channel."""
        with self.catalog.writing() as tx:
            if channel not in chains.channel_names(tx):
                return
            if channel in registry.tasks(tx):
                registry.drop_task(tx, channel)
            chains.drop_channel(tx, channel)
        sweep(self.catalog, self.storage)

    def _write(self, begun: Begun[object], channel: str, kind: Kind, rows: list[int]) -> Block:  # type: ignore[type-var]
        name = begun.name_block(channel)
        self.storage.write(name, rows)
        return _block(name, kind, rows)

    def rows(self, reading: Reading) -> Counter[int]:
        """The rows of a relation, or those that a change adds."""
        match reading:
            case Snapshot() | Chain():
                return sum((self.storage.rows(block) for block in reading.blocks), Counter[int]())
            case Diff(old=old, new=new):
                before, after = self.rows(old), self.rows(new)
                assert before <= after
                return after - before
            case Strong():
                raise AssertionError("append is no weak delta")
            case _:
                assert_never(reading)

    def relation(self, channel: str) -> list[int]:
        with self.catalog.reading() as tx:
            chronicle = chains.chronicle(tx, channel)
        return sorted(self.rows(chronicle.snapshot(chronicle.readable)).elements())

    def check(self) -> None:
        """What every reader may rely on, at any moment."""
        with self.catalog.reading() as tx:
            registered = registry.tasks(tx)
            found = chains.chronicles(tx)
        relations = {
            name: [self._known(chronicle, at) for at in range(chronicle.readable + 1)]
            for name, chronicle in found.items()
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

    def _known(self, chronicle: Chronicle, at: int) -> Counter[int] | None:
        """The relation at a point; None if it was collected."""
        from kilonova.errors import UnknownName

        try:
            return self.rows(chronicle.snapshot(at))
        except UnknownName:
            return None

    def check_clean(self) -> None:
        """That nothing is left over, once all runs have ended and the garbage has been collected."""
        with self.catalog.reading() as tx:
            states = chains.block_states(tx)
            live = sorted(name for name, state in states.items() if state == chains.LIVE)
            assert set(states.values()) <= {chains.LIVE, chains.GONE}
            assert rows_of_table(tx, "pin") == rows_of_table(tx, "claim") == []
            assert all(run.ended is not None for run in history.runs(tx))
            for chronicle in chains.chronicles(tx).values():
                assert chronicle.readable == chronicle.newest
        assert self.storage.blocks() == live


def _output(channel: str, point: int, block: Block | None, version: Version, task: str | None) -> Output:
    return Output(channel=channel, point=point, block=block, version=version, task=task, reason="", seconds=0)


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
