"""A project that has been at work for long: many channels and tasks, and a history that was never carried out.

Everything is registered as it always is; what runs would have left in the catalog is written into its tables.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import insert, select, update

import kilonova as kn
from kilonova.catalog import codec, tables
from kilonova.catalog.database import Transaction, insert_all
from kilonova.model.trigger import ArrivalTrigger, conditions_of
from kilonova.model.version import Version
from kilonova.service.project import Project

_AREAS = (
    ("sales", "orders returns refunds quotes carts"),
    ("web", "pages clicks sessions searches forms"),
    ("ads", "impressions bids budgets campaigns creatives"),
    ("billing", "invoices payments disputes taxes credits"),
    ("supply", "stock suppliers deliveries purchases prices"),
    ("people", "accounts logins profiles consents addresses"),
    ("support", "tickets calls chats surveys agents"),
    ("media", "plays uploads ratings comments follows"),
    ("fleet", "trips fuelings repairs drivers routes"),
    ("energy", "meters tariffs outages forecasts loads"),
)

_REGIONS = ("eu", "us", "apac", "latam", "mea", "uk", "jp", "in", "br", "ca")


def names(sources: int) -> list[tuple[str, str]]:
    """Areas and source channels, such as `("sales", "orders_eu")`."""
    every = [(area, f"{thing}_{region}") for region in _REGIONS for area, things in _AREAS for thing in things.split()]
    if sources > len(every):
        raise ValueError(f"there are names for {len(every)} sources")
    return sorted(every[:sources])


def workflows(sources: int, tasks: int) -> list[kn.Workflow]:
    """Workflows of so many source channels and tasks in all, most of them views, some in workflowettes."""
    of_area: dict[str, list[str]] = {}
    for area, name in names(sources):
        of_area.setdefault(area, []).append(name)
    left: int = tasks
    found: list[kn.Workflow] = []
    for number, (area, mine) in enumerate(of_area.items()):
        share = left // (len(of_area) - number)
        left -= share
        found.append(_workflow(area, mine, share, [channel for other, channel in names(sources) if other < area]))
    return found


def _workflow(area: str, sources: Sequence[str], tasks: int, elsewhere: Sequence[str]) -> kn.Workflow:
    """A workflow, which may read source channels of those before it."""
    workflow = kn.Workflow(area)
    for name in sources:
        workflow.channel(name, "id bigint, account bigint, amount bigint", description=f"{name}, as they come in")
    layers = [
        ("clean", "SELECT id, account, amount FROM {0} WHERE amount > 0"),
        ("per_account", "SELECT account, count(*) AS n, sum(amount) AS amount FROM {1} GROUP BY account"),
    ]
    made: list[str] = []
    for position in range(tasks):
        source = sources[position % len(sources)]
        depth = position // len(sources)
        if depth < len(layers):
            suffix, text = layers[depth]
            before = [source, *(f"{source}_{other}" for other, _ in layers)]
            name, query = f"{source}_{suffix}", text.format(*before)
        elif position == tasks - 1 and elsewhere and len(made) > len(sources):
            name = f"{area}_overall"
            query = (
                f"SELECT b.account FROM {made[len(sources)]} AS a JOIN {elsewhere[-1]} AS b ON a.account = b.account"
            )
        else:
            one, other = made[position % len(sources)], made[(position * 7 + depth) % len(made)]
            name = f"{source}_with_{depth}"
            query = f"SELECT a.account, b.account AS other FROM {one} AS a JOIN {other} AS b ON a.account = b.account"
        workflow.view(name, query)
        made.append(name)
    for number in range(0, len(sources), 3):
        members = [f"{sources[number]}_{suffix}" for suffix, _ in layers if f"{sources[number]}_{suffix}" in made]
        if len(members) > 1:
            triggers = [kn.arrival(sources[number], rows=100_000, age="1 hour"), kn.cron(f"{number % 60} */6 * * *")]
            workflow.workflowette(f"{sources[number]}_accounts", members, on=triggers)
    return workflow


def fill(project: Project, runs: int, *, seed: int = 1) -> None:
    """Write down runs of all tasks over the last two weeks, some of which failed, and some that go on.

    Args:
        project: a project whose workflows are registered and have not run.
        runs: how many, ingests included.
        seed: of what is random in it.
    """
    with project.catalog.writing() as tx:
        _History(tx, random.Random(seed), runs).write()


class _History:
    def __init__(self, tx: Transaction, chance: random.Random, runs: int) -> None:
        self.tx = tx
        self.chance = chance
        self.runs = runs
        self.channels = {row.name: row for row in tx.connection.execute(select(tables.channel))}
        self.tasks = {row.name: row for row in tx.connection.execute(select(tables.task))}
        self.bindings = {row.name: row.id for row in tx.connection.execute(select(tables.binding))}
        self.armed = list(tx.connection.execute(select(tables.trigger)))
        self.triggers = {row.binding_id: row.id for row in self.armed}
        self.members: dict[str, list[str]] = {}
        for row in tx.connection.execute(select(tables.task).order_by(tables.task.c.id)):
            self.members.setdefault(row.binding, []).append(row.name)
        self.ports: dict[str, list[list[str]]] = {}
        numbers = {row.id: name for name, row in self.tasks.items()}
        for row in tx.connection.execute(select(tables.variant).order_by(tables.variant.c.position)):
            self.ports.setdefault(numbers[row.task_id], row.ports)
        self.sources = [name for name in self.channels if name not in self.tasks]
        self.points = dict.fromkeys(self.channels, 0)
        self.live: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {name: [] for name in self.channels}
        self.cursors: dict[tuple[str, str], int] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("run", "point", "block", "placement", "run_output", "run_input", "event", "firing")
        }

    def write(self) -> None:
        span = timedelta(days=14)
        order = sorted(self.members, key=lambda name: min(self.tasks[task].id for task in self.members[name]))
        ingests = max(len(self.sources), self.runs // 10)
        plan: list[str | None] = [None] * (self.runs)
        for number in range(ingests):
            plan[number * self.runs // ingests] = self.sources[number % len(self.sources)]
        started, going = 0, max(1, min(6, len(order) // 5))
        plan[-going - 2] = self.sources[-1]  # something is due, and something has failed
        for number in range(self.runs):
            time = self.tx.now - span + span * (number / self.runs)
            source = plan[number]
            if source is not None:
                self._ingest(number + 1, source, time)
            else:
                left = self.runs - number
                state = "running" if left <= going else "failed" if left == going + 1 else None
                self._run(number + 1, order[started % len(order)], time, state)
                started += 1
        for name, rows in self.rows.items():
            insert_all(self.tx, getattr(tables, name), rows)
        cursors = [
            {"task_id": self.tasks[task].id, "channel_id": self.channels[channel].id, "point": point, "logic": 0}
            for (task, channel), point in self.cursors.items()
        ]
        insert_all(self.tx, tables.cursor, cursors)
        self._arm()
        for channel in self.channels.values():
            if channel.schema is None:
                schema = [["account", "bigint"], ["amount", "bigint"]]
                self.tx.connection.execute(
                    update(tables.channel).where(tables.channel.c.id == channel.id).values(schema=schema)
                )
        self.tx.connection.execute(
            insert(tables.server),
            [
                {
                    "name": f"{host}-{number}",
                    "release": "0.1.0",
                    "state": state,
                    "started": self.tx.now - timedelta(hours=ago),
                    "lease_until": self.tx.now + timedelta(seconds=left),
                }
                for host, number, state, ago, left in (
                    ("gauss", 4711, "alive", 51, 600),
                    ("noether", 812, "alive", 30, 600),
                    ("euler", 93, "silent", 200, -40_000),
                    ("euler", 41, "stopped", 300, -720_000),
                )
            ],
        )

    def _arm(self) -> None:
        """Triggers have seen all that has come, and wait for what comes next."""
        for row in self.armed:
            trigger = codec.trigger_from_json(row.definition)
            state = [
                replace(one, seen=self.points[item.channel]) if isinstance(item, ArrivalTrigger) else one
                for item, one in zip(conditions_of(trigger), codec.state_from_json(row.state), strict=True)
            ]
            next_check = min((one.time for one in state if one.time is not None), default=None)
            values = {"state": codec.state_to_json(tuple(state)), "next_check": next_check}
            self.tx.connection.execute(update(tables.trigger).where(tables.trigger.c.id == row.id).values(**values))

    def _began(self, number: int, kind: str, state: str, time: datetime, seconds: float, tasks: list[str]) -> None:
        self.rows["run"].append(
            {
                "id": number,
                "kind": kind,
                "state": state,
                "tasks": tasks,
                "owner": f"gauss-4711/{number % 4}",
                "started": time,
                "ended": None if state == "running" else time + timedelta(seconds=seconds),
                "lease_until": time + timedelta(days=3 if state == "running" else 0, seconds=60),
                "error": None,
                "binding": None,
                "progress": None,
            }
        )
        self._tell(time, "launched", number, tasks[:1], "")

    def _tell(self, time: datetime, kind: str, run: int, channels: list[str], text: str) -> None:
        self.rows["event"].append(
            {"time": time, "kind": kind, "run": run, "binding": None, "channels": channels, "text": text}
        )

    def _point(self, channel: str, run: int, time: datetime, state: str = "filled") -> int:
        self.points[channel] += 1
        number = self.points[channel]
        version = Version.source(channel, number) if channel not in self.tasks else Version()
        self.rows["point"].append(
            {
                "channel_id": self.channels[channel].id,
                "number": number,
                "state": state,
                "version": codec.version_to_json(version),
                "time": None if state == "reserved" else time,
                "run_id": run,
            }
        )
        return number

    def _block(self, channel: str, run: int, start: int | None, end: int, rows: int) -> dict[str, Any]:
        schema = self.channels[channel].schema or [["account", "bigint"], ["amount", "bigint"]]
        block = {
            "id": len(self.rows["block"]) + 1,
            "run_id": run,
            "state": "live",
            "schema": schema,
            "encoding": self.channels[channel].encoding,
            "columns": schema,
            "buckets": 0,
            "rows": rows,
            "bytes": rows * 14,
            "files": 1,
            "removals": 0,
            "net_rows": None if start is None else rows,
        }
        placement = {
            "channel_id": self.channels[channel].id,
            "block_id": block["id"],
            "start": start,
            "end": end,
            "live": True,
            "stamp": str(block["id"]),
        }
        self.rows["block"].append(block)
        self.rows["placement"].append(placement)
        live = self.live[channel]
        if start is None:
            for gone, place in live:
                gone["state"], place["live"] = "gone", False
            live.clear()
        live.append((block, placement))
        return block

    def _ingest(self, number: int, source: str, time: datetime) -> None:
        seconds = self.chance.uniform(0.4, 3)
        self._began(number, "ingest", "succeeded", time, seconds, [])
        end = time + timedelta(seconds=seconds)
        before = self.points[source]
        point = self._point(source, number, end)
        first = point % 40 == 1
        rows = self.chance.randrange(1_000, 90_000) * (30 if first else 1)
        block = self._block(source, number, None if first else before, point, rows)
        self._made(number, source, point, block["id"], None, "read from a file", seconds, None, 0, 0)
        self._tell(end, "succeeded", number, [source], "")

    def _made(
        self,
        number: int,
        channel: str,
        point: int,
        block: int | None,
        task: str | None,
        reason: str,
        seconds: float,
        method: str | None,
        change: int,
        whole: int,
    ) -> None:
        self.rows["run_output"].append(
            {
                "run_id": number,
                "channel_id": self.channels[channel].id,
                "point": point,
                "block_id": block,
                "task": task,
                "reason": reason,
                "seconds": seconds,
                "way": method,
                "change_bytes": change if method else None,
                "whole_bytes": whole if method else None,
                "estimates": {method: 0.8 * seconds, "full": max(2.4, 0.9 * seconds)} if method else None,
            }
        )

    def _run(self, number: int, binding: str, time: datetime, ended: str | None) -> None:
        tasks = self.members[binding]
        seconds = self.chance.lognormvariate(0.7, 0.9) * len(tasks)
        state = ended or ("failed" if self.chance.random() < 0.01 else "succeeded")
        self._began(number, "tasks", state, time, seconds, tasks)
        run = self.rows["run"][-1]
        run["binding"] = binding
        end = time + timedelta(seconds=seconds)
        self.rows["firing"].append(
            {
                "binding_id": self.bindings[binding],
                "trigger_id": self.triggers.get(self.bindings[binding]),
                "occurrence": f"{tasks[0]}@{number}",
                "time": time,
                "state": state,
                "attempts": 0,
                "server": "gauss-4711",
                "run_id": number,
                "ended": None if state == "running" else end,
                "since": time,
                "stuck": False,
                "due_only": False,
            }
        )
        for task in tasks:
            if state == "running":
                run["progress"] = {"steps": len(tasks), "ended": 0, "going": [[tasks[0], 3, 8]]}
                self._point(task, number, end, "reserved")
                continue
            if state == "failed":
                run["error"] = f"task {task}: the column amount is not there. It has the columns id and account"
                self._point(task, number, end, "cancelled")
                continue
            before = self.points[task]
            point = self._point(task, number, end)
            whole = not self.live[task] or self.chance.random() < 0.04
            rows = self.chance.randrange(500, 20_000) * (20 if whole else 1)
            block = self._block(task, number, None if whole else before, point, rows)
            reason = (
                "estimated at 0.9 s, a full refresh at 3.1 s"
                if not whole
                else "estimated at 2.1 s, its change at 2.4 s"
            )
            share = seconds / len(tasks)
            method = "full" if whole else "incremental"
            self._made(number, task, point, block["id"], task, reason, share, method, rows * 10, 40_000_000)
            for port, channel, _ in self.ports[task]:
                start = self.cursors.get((task, channel), 0)
                self.cursors[task, channel] = self.points[channel]
                self.rows["run_input"].append(
                    {
                        "run_id": number,
                        "task": task,
                        "port": port,
                        "channel_id": self.channels[channel].id,
                        "start": start,
                        "end": self.points[channel],
                    }
                )
        if state != "running":
            self._tell(end, state, number, tasks, run["error"] or "")
