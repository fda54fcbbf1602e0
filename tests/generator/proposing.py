"""What may come next in a history: random steps, valid and invalid, around what is there by now."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kilonova.model.encoding import delta_schema
from kilonova.model.schema import Schema
from tests.generator.declared import CUSTOM, KEYED, BindingSpec, ChannelSpec, Spec, TaskSpec, standard
from tests.generator.expected import Expected
from tests.generator.ops import OPS, ROWS
from tests.generator.steps import Apply, Collect, Compact, Drop, During, Ending, Ingest, Run, Step, Turn

NOT_YET = {
    "columns deltas that add or drop some": "not there yet",
    "several writers of keyed channels": "in one run, their order is not that of the reference",
    "views and tasks in SQL": "the warehouse in plain Python knows no SQL",
    "checks, watched directories": "nobody has written it",
    "workflowettes with ports, bound to channels": "nobody has written it",
    "joined": "only `tests/engine/test_read_ends.py` runs it so far",
}
"""What is not generated so far, and why. To be empty."""

NOT_ON_SPARK = ("peak",)
"""Kinds and operations that are not generated on Spark. To be empty."""

SHARED = ("append", "increment")
"""Kinds of channels that may have several writers: the order in which their deltas are merged does not matter."""

SHAPED = ("append", "upsert", "changes", "keyed")
"""Kinds of source channels that may take rows of several shapes."""

KINDS = ("append", "upsert", "changes", "keyed", "increment", "columns", "stock", "peak")


class Proposer:
    """Proposes steps.

    Args:
        random: where chance comes from.
        expected: how things stand.
        left_out: the kinds of source channels, and the operations, that are not proposed.
    """

    def __init__(self, random: random.Random, expected: Expected, left_out: Sequence[str] = ()) -> None:
        self.random = random
        self.kinds = [kind for kind in KINDS if kind not in left_out]
        self.ops = [op for op in OPS if op not in left_out and op not in NOT_YET]
        self.expected = expected
        self.spec = Spec((), ())
        self.earlier: list[Spec] = []
        self._numbers = iter(range(1, 1000))
        self._coming: list[Step] = []

    def first(self) -> Step:
        """A workflow to begin with."""
        for _ in range(self.random.randint(1, 3)):
            self._add_source()
        for _ in range(self.random.randint(2, 6)):
            self._add_task()
        return Apply(self.spec)

    def next(self) -> Step:
        """Some step."""
        if self._coming:
            return self._coming.pop(0)
        makers = {
            self._ingest: 40,
            self._run: 28,
            self._compact: 8,
            self._collect: 6,
            self._replace: 5,
            self._spoiled: 8,
            self._redeclare: 6,
            self._drop: 3,
            self._during: 16,
            self._rebuild: 3,
            self._turn: 8,
        }
        maker = self.random.choices(list(makers), list(makers.values()))[0]
        return maker() or Run()

    # Workflows

    def _add_source(self) -> None:
        channel = standard(f"c{next(self._numbers)}", self.random.choice(self.kinds))
        several = channel.kind in SHARED and self.random.random() < 0.5
        sequence = channel.kind == "upsert" and not several and self.random.random() < 0.5
        shapes = channel.kind in SHAPED and not several and self.random.random() < 0.4
        channel = replace(channel, several=several, sequence=sequence, shapes=shapes)
        self.spec = replace(self.spec, channels=(*self.spec.channels, channel))

    def _add_task(self) -> None:
        name = f"t{next(self._numbers)}"
        fitting = []
        for op in self.ops:
            choices = [[c for c in self.spec.channels if c.kind in kinds] for kinds in OPS[op].inputs]
            if all(choices):
                fitting.append((op, choices))
        if not fitting:
            return
        adding = [(op, choices) for op, choices in fitting if OPS[op].adds(0)]
        shares = bool(adding) and self.random.random() < 0.7
        fitting = adding if shares else fitting
        op, choices = self.random.choice(fitting)
        inputs = [self.random.choice(some) for some in choices]
        outputs: list[ChannelSpec] = []
        place = len(self.spec.tasks)
        for number, kinds in enumerate(OPS[op].outputs(*(channel.kind for channel in inputs))):
            kind = self.random.choice([kind for kind in kinds if shares and kind in SHARED] or kinds)
            columns = standard("", kind).columns if kind in ("increment", "columns") else inputs[0].columns
            output = ChannelSpec(f"{name}_{number}", kind, columns)
            if shares and kind in SHARED and OPS[op].adds(number):
                output = replace(output, several=True)
                shared = [(c, at) for c in self.spec.channels if (at := self._place(c, output, inputs)) is not None]
                if shared and not outputs:
                    output, place = self.random.choice(shared)
            outputs.append(output)
        task = TaskSpec(
            name, op, tuple(c.name for c in inputs), tuple(c.name for c in outputs), self.random.randint(0, 3)
        )
        new = tuple(channel for channel in outputs if channel not in self.spec.channels)
        tasks = (*self.spec.tasks[:place], task, *self.spec.tasks[place:])
        self.spec = replace(self.spec, channels=(*self.spec.channels, *new), tasks=tasks)

    def _place(self, channel: ChannelSpec, output: ChannelSpec, inputs: Sequence[ChannelSpec]) -> int | None:
        """Before which task one more writer of a channel may stand; None if it may not, or not with these inputs."""
        names = {each.name for each in inputs}
        places = enumerate(self.spec.tasks)
        readers = [place for place, task in places if channel.name in task.reads]
        place = min(readers, default=len(self.spec.tasks))
        late = [task for task in self.spec.tasks[place:] if not names.isdisjoint(task.writes)]
        fits = replace(output, name=channel.name) == channel and channel.name not in names
        return place if fits and not late else None

    def _redeclare(self) -> Step | None:
        """Change the workflow."""
        before = self.spec
        self.earlier.append(before)
        match self.random.choice(
            ("logic", "add", "remove", "columns", "columns", "none", "again", "again", "bind", "bind")
        ):
            case "logic" if before.tasks:
                task = self.random.choice(before.tasks)
                changed = replace(task, constant=(task.constant + 1) % 4)
                self.spec = replace(before, tasks=tuple(changed if t == task else t for t in before.tasks))
            case "add":
                self._add_task()
            case "columns":
                self._change_columns()
            case "remove":
                self.spec = next(iter(self._shuffled(before.smaller())), before)
            case "bind":
                self.spec = self._bound()
            case "none":
                self.spec = Spec(before.channels, ())
            case "again":
                self.spec = self.random.choice(self.earlier)
        proposed = self.spec
        if self.expected.mixes(proposed):  # it will be refused
            self.spec = before
        return Apply(proposed)

    def _bound(self) -> Spec:
        """The workflow with some of its tasks in one binding more."""
        free = [t.name for t in self.spec.tasks if all(t.name not in b.tasks for b in self.spec.bindings)]
        if not free:
            return replace(self.spec, bindings=())
        members = tuple(self.random.sample(free, self.random.randint(1, min(3, len(free)))))
        choices = [("arrival", channel.name) for channel in self.spec.sources] + [("every", "3600"), ("every", "60")]
        choices += [("after", binding.name) for binding in self.spec.bindings]
        on = tuple(self.random.sample(choices, self.random.randint(1, min(3, len(choices)))))
        name = f"b{next(self._numbers)}"
        chance = self.random.random
        return replace(
            self.spec, bindings=(*self.spec.bindings, BindingSpec(name, members, on, chance() < 0.3, chance() < 0.3))
        )

    def _turn(self) -> Step:
        return Turn(self.random.choice((0, 1, 10, 60, 3600)))

    def _rebuild(self) -> Step | None:
        """Drop a channel, with all that reads it, and declare it again, be it as another kind."""
        if not self.spec.sources:
            return None
        channel = self.random.choice(self.spec.sources)
        gone, reads = {channel.name}, list[TaskSpec]()
        for _ in self.spec.tasks:  # writers of one channel may stand anywhere
            for task in self.spec.tasks:
                if task not in reads and not gone.isdisjoint((*task.reads, *task.writes)):
                    gone |= set(task.writes)
                    reads.append(task)
        before = self.spec
        left = Spec(
            tuple(c for c in before.channels if c.name not in gone), tuple(t for t in before.tasks if t not in reads)
        )
        if self.random.random() < 0.3:
            self.spec = replace(left, channels=(*left.channels, standard(channel.name, self.random.choice(self.kinds))))
        also = [Drop(name) for name in sorted(gone - {channel.name}) if self.random.random() < 0.5]
        self._coming = [Drop(channel.name), *also, Apply(self.spec)]
        return Apply(left)

    def _change_columns(self) -> None:
        """Take the column `w` from a channel, widen it, or add it, again perhaps.

        It has another type than at first only where nobody reads it.
        """
        some = [channel for channel in self.spec.channels if channel.kind in ROWS and not channel.several]
        if not some:
            return
        channel = self.random.choice(some)
        columns = tuple(column for column in channel.columns if column[0] != "w")
        touched = {name for task in self.spec.tasks for name in (*task.reads, *task.writes)}
        if columns == channel.columns:
            types = ("string",) if channel.name in touched else ("string", "int", "bigint")
            columns = (*columns, ("w", self.random.choice(types)))
        elif ("w", "int") in channel.columns and channel.name not in touched and self.random.random() < 0.7:
            columns = tuple((name, "bigint" if name == "w" else kind) for name, kind in channel.columns)
        changed = replace(channel, columns=columns)
        self.spec = replace(self.spec, channels=tuple(changed if c == channel else c for c in self.spec.channels))

    def _shuffled(self, items: Any) -> list[Any]:
        found = list(items)
        self.random.shuffle(found)
        return found

    def _drop(self) -> Step | None:
        names = list(self.expected.channels)
        if not names:
            return None
        name = self.random.choice(names)
        known = (*self.spec.tasks, *(task.spec for task in self.expected.tasks.values()))
        if not any(name in task.reads or len(task.writes) > 1 for task in known):
            tasks = tuple(task for task in self.spec.tasks if name not in task.writes)
            self.spec = Spec(tuple(c for c in self.spec.channels if c.name != name), tasks)
        return Drop(name)

    # Rows

    def _source(self) -> ChannelSpec | None:
        written = {name for task in self.expected.tasks.values() for name in task.spec.writes}
        sources = [spec for name, spec in self.expected.specs.items() if name not in written or spec.several]
        return self.random.choice(sources) if sources else None

    def _value(self, name: str, kind: str) -> Any:
        match name:
            case "k":
                return self.random.randint(0, 3)
            case "w" if kind == "string":
                return self.random.choice(("a", "b", None))
            case _:
                return self.random.choice((None, *range(-1, 5))) if self.random.random() < 0.5 else 1

    def _row(self, channel: ChannelSpec) -> dict[str, Any]:
        row = {column[0]: self._value(*column) for column in channel.columns}
        if channel.kind == "append" and self.random.random() < 0.05:
            row["k"] = None
        if channel.kind in ("stock", "peak") and not row["v"]:
            row["v"] = 1
        return row

    def _ingest(self) -> Step | None:
        channel = self._source()
        if channel is None:
            return None
        rows = [self._row(channel) for _ in range(self.random.choice((0, 1, 1, 2, 3)))]
        now = self.expected.channels[channel.name]
        there = [dict(zip(now.schema.names, row, strict=True)) for row in now.at(now.readable).elements()]
        names = [name for name, _ in channel.columns]
        match channel.kind:
            case "upsert" if channel.sequence:
                rows = list({(row["k"], row["v"]): row for row in rows}.values())
            case "upsert" | "columns":
                rows = list({row["k"]: row for row in rows}.values())
                if self.random.random() < 0.6:
                    for row in rows:
                        row["_deleted"] = self.random.choice((False, False, True, None))
                    names.append("_deleted")
                if channel.kind == "columns" and self.random.random() < 0.6:
                    others = [name for name in names if name not in ("k", "_deleted")]
                    for row in rows:
                        some = tuple(self.random.sample(others, self.random.randint(0, len(others))))
                        row["_set"] = self.random.choice((None, some, some))
                    names.append("_set")
                elif channel.kind == "columns" and self.random.random() < 0.4:
                    names.remove(self.random.choice([name for name in names if name not in ("k", "_deleted")]))
            case "changes":
                for row in rows:
                    row["_weight"] = self.random.choice((1, 1, 2, None))
                gone = self.random.sample(there, self.random.randint(0, min(2, len(there))))
                rows += [row | {"_weight": -1} for row in gone]
                names.append("_weight")
            case "keyed":
                rows = list({row["k"]: row for row in rows}.values())
                keys = {row["k"] for row in rows}
                gone = [row for row in there if row["k"] in keys or self.random.random() < 0.2]
                rows = [row | {"_weight": 1} for row in rows] + [row | {"_weight": -1} for row in gone]
                names.append("_weight")
        return self._ingested(channel, names, rows)

    def _replace(self) -> Step | None:
        channel = self._source()
        if channel is None:
            return None
        rows = [self._row(channel) for _ in range(self.random.choice((0, 1, 2, 3)))]
        if channel.kind in (*KEYED, *CUSTOM):
            rows = list({row["k"]: row for row in rows}.values())
        return self._ingested(channel, [name for name, _ in channel.columns], rows, whole=True)

    def _spoiled(self) -> Step | None:
        """An insert with something wrong with it, as a rule."""
        step = self.random.choice((self._ingest, self._replace))()
        if not isinstance(step, Ingest) or step.channel not in self.expected.specs:
            return step
        channel = self.expected.specs[step.channel]
        columns, rows, names = step.columns, list(step.records), list(step.columns.names)
        match self.random.choice(("null", "twice", "missing", "unknown", "type", "derived", "gone", "set", "weights")):
            case "null":
                rows = [row | {"k": None} for row in rows]
            case "twice" if channel.kind not in CUSTOM:  # whose functions know one row per key
                rows = [*rows, *rows]
            case "missing":
                names = names[1:] or names
            case "unknown":
                columns = columns.plus(("surplus", "bigint"))
                names.append("surplus")
            case "type":
                columns = Schema.of(*((n, "double" if n == "k" else columns.type_of(n)) for n in columns.names))
            case "derived":
                return replace(step, channel=self.random.choice(list(self.expected.channels)))
            case "gone":
                return replace(step, channel="nowhere")
            case "set" if "_set" in names:
                rows = [row | {"_set": (self.random.choice(("surplus", "k")),)} for row in rows]
            case "weights" if "_weight" in names:
                rows = [row | {"_weight": -2} for row in rows]
            case _:
                pass

        kept = Schema(tuple(column for column in columns.columns if column.name in names))
        return replace(step, columns=kept, rows=tuple(tuple(row.get(name) for name in kept.names) for row in rows))

    def _ingested(
        self, channel: ChannelSpec, names: list[str], rows: list[dict[str, Any]], *, whole: bool = False
    ) -> Ingest:
        every = channel.schema if whole else delta_schema(channel.encoding, channel.schema)
        columns = Schema(tuple(column for column in every.columns if column.name in names))
        if channel.shapes and self.random.random() < 0.6:
            kept = self.random.choice(("w", "old", None))
            columns = Schema(tuple(replace(c, name=kept or "w") if c.name == "w" else c for c in columns.columns))
            columns = columns if kept else columns.without("w")
            rows = [row | {"old": row.get("w"), "more": 1} for row in rows]
            columns = columns.plus(("more", "bigint")) if self.random.random() < 0.5 else columns
        return Ingest(
            channel.name, columns, tuple(tuple(row.get(name) for name in columns.names) for row in rows), whole
        )

    # The rest

    def _during(self) -> Step | None:
        """A step within which others happen."""
        makers = (self._ingest, self._ingest, self._replace, self._spoiled, self._run, self._run, self._compact)
        outer = self.random.choice(makers)()
        if outer is None:
            return None
        if isinstance(outer, Run):
            outer = replace(outer, each=False)
        within = (self._ingest, self._ingest, self._replace, self._run, self._run, self._compact, self._collect)
        within += (self._redeclare, self._redeclare)
        inner = [step for _ in range(self.random.randint(0, 4)) if (step := self.random.choice(within)()) is not None]
        if isinstance(outer, Ingest):  # so that slots of one channel overlap
            again = [step for _ in range(4) if isinstance(step := self._ingest(), Ingest)]
            inner += [step for step in again if step.channel == outer.channel]
        others = tuple(
            name for name in self.expected.tasks if isinstance(outer, Run) and name not in (outer.names or ())
        )
        if isinstance(outer, Run) and outer.names and others:  # so that other writers of a channel, and readers, go on
            inner.append(Run(others))
        self.random.shuffle(inner)
        return During(outer, tuple(inner), self.random.choice(list(Ending)))

    def _run(self) -> Step:
        tasks, each = list(self.expected.tasks), self.random.random() < 0.6
        if tasks and self.random.random() < 0.4:
            return Run(tuple(self.random.sample(tasks, self.random.randint(1, min(3, len(tasks))))), each)
        return Run(("nobody",), each) if self.random.random() < 0.03 else Run(None, each)

    def _compact(self) -> Step | None:
        names = list(self.expected.channels)
        deltas = self.random.random() < 0.5
        return Compact(self.random.choice((*names, *names, "nowhere")) if names else "nowhere", deltas)

    def _collect(self) -> Step | None:
        names = list(self.expected.channels)
        return Collect(self.random.choice((None, None, *names)))
