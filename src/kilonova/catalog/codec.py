"""How the model's values are written down in JSON columns, and read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, assert_never

from kilonova.errors import CatalogError
from kilonova.model.block import External, FileGroup, StoredFile
from kilonova.model.check import Accepted, Check, Condition, NotNull, Unique
from kilonova.model.directory import Directory
from kilonova.model.encoding import Append, Changes, Columns, Custom, Encoding, Increment, Upsert
from kilonova.model.event import EventKind
from kilonova.model.file import Fingerprint
from kilonova.model.headway import Amount, Going, Headway
from kilonova.model.outlet import Lineage, Outlet, Webhook
from kilonova.model.policy import AfterDeltas, Never, Policy, Weigh
from kilonova.model.run import Way
from kilonova.model.schedule import Cron, Every, Schedule
from kilonova.model.schema import Column, Schema
from kilonova.model.trigger import (
    After,
    AllOf,
    Armed,
    Arrival,
    Clock,
    Missed,
    Occurrence,
    Reached,
    Simple,
    State,
    Trigger,
)
from kilonova.model.version import Reflection, Version


def schema_to_json(schema: Schema) -> list[list[Any]]:
    """A schema as [[name, type], …], with the point since which there is a column where that is not 0."""
    return [[c.name, c.type, c.since] if c.since else [c.name, c.type] for c in schema.columns]


def schema_from_json(value: list[list[Any]]) -> Schema:
    """The inverse of `schema_to_json`."""
    return Schema(tuple(Column(*column) for column in value))


def numbers_to_json(numbers: Iterable[int]) -> list[list[int]]:
    """Numbers as the ranges [[first, last], …] that they make.

    >>> numbers_to_json([7, 2, 3, 4])
    [[2, 4], [7, 7]]
    """
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges


def numbers_from_json(value: list[list[int]]) -> set[int]:
    """The inverse of `numbers_to_json`."""
    return {number for first, last in value for number in range(first, last + 1)}


def external_to_json(external: External) -> dict[str, Any]:
    """External files, with their fingerprints."""
    return {
        "format": external.format,
        "options": dict(external.options),
        "groups": [
            {
                "columns": schema_to_json(group.columns),
                "files": [
                    [url, seen.size, None if seen.modified is None else seen.modified.isoformat(), seen.tag]
                    for url, seen in group.files
                ],
            }
            for group in external.groups
        ],
    }


def external_from_json(value: dict[str, Any]) -> External:
    """The inverse of `external_to_json`."""
    return External(
        format=value["format"],
        options=tuple(value["options"].items()),
        groups=tuple(
            FileGroup(
                columns=schema_from_json(group["columns"]),
                files=tuple(
                    (url, Fingerprint(size, None if modified is None else datetime.fromisoformat(modified), tag))
                    for url, size, modified, tag in group["files"]
                ),
            )
            for group in value["groups"]
        ),
    )


def stored_to_json(files: Iterable[StoredFile]) -> list[list[Any]]:
    """Files of a block as [[name, size, rows, checksum], …]."""
    return [[file.name, file.size, file.rows, file.checksum] for file in files]


def stored_from_json(value: list[list[Any]]) -> tuple[StoredFile, ...]:
    """The inverse of `stored_to_json`."""
    return tuple(StoredFile(name=name, size=size, rows=rows, checksum=checksum) for name, size, rows, checksum in value)


def encoding_to_json(encoding: Encoding) -> dict[str, Any]:
    """An encoding with its parameters."""
    match encoding:
        case Append():
            return {"encoding": "append"}
        case Upsert(key):
            return {"encoding": "upsert", "key": list(key)}
        case Changes(key):
            return {"encoding": "changes", "key": list(key)}
        case Increment(key, measures):
            return {"encoding": "increment", "key": list(key), "measures": list(measures)}
        case Columns(key):
            return {"encoding": "columns", "key": list(key)}
        case Custom(key, function, delta):
            own = {} if delta is None else {"delta": schema_to_json(delta)}
            lacks = {} if encoding.has_diff else {"has_diff": False}
            return {"encoding": "custom", "key": list(key), "function": function, **own, **lacks}
        case _:
            assert_never(encoding)


def policy_to_json(policy: Policy) -> dict[str, Any]:
    """When a channel is compacted by itself."""
    match policy:
        case Weigh(waste=waste):
            return {"policy": "weigh", "waste": waste}
        case AfterDeltas(deltas=deltas):
            return {"policy": "after", "deltas": deltas}
        case Never():
            return {"policy": "never"}
        case _:
            assert_never(policy)


def policy_from_json(value: dict[str, Any] | None) -> Policy:
    """The inverse of `policy_to_json`; what is weighed is the rule."""
    match value:
        case None:
            return Weigh()
        case {"policy": "weigh", "waste": waste}:
            return Weigh(waste=waste)
        case {"policy": "after", "deltas": deltas}:
            return AfterDeltas(deltas=deltas)
        case {"policy": "never"}:
            return Never()
        case _:
            raise CatalogError(f"{value} is no policy that this release knows", hint="Use the release that wrote it")


def encoding_from_json(value: dict[str, Any]) -> Encoding:
    """The inverse of `encoding_to_json`.

    Raises:
        CatalogError: the encoding is not one that this release knows.
    """
    key = tuple(value.get("key", ()))
    match value["encoding"]:
        case "append":
            return Append()
        case "upsert":
            return Upsert(key)
        case "changes":
            return Changes(key)
        case "increment":
            return Increment(key, tuple(value["measures"]))
        case "columns":
            return Columns(key)
        case "custom":
            own = schema_from_json(value["delta"]) if "delta" in value else None
            return Custom(key, value["function"], own, value.get("has_diff", True))
        case other:
            raise CatalogError(f"the catalog names an unknown encoding, {other}", hint="Upgrade Kilonova")


def checks_to_json(checks: tuple[Check, ...]) -> list[dict[str, Any]]:
    """Checks with their parameters."""
    return [_check_to_json(check) for check in checks]


def _check_to_json(check: Check) -> dict[str, Any]:
    match check:
        case NotNull(column):
            return {"check": "not_null", "column": column}
        case Unique(columns):
            return {"check": "unique", "columns": list(columns)}
        case Accepted(column, values):
            return {"check": "accepted", "column": column, "values": list(values)}
        case Condition(text):
            return {"check": "rows", "condition": text}
        case _:
            assert_never(check)


def checks_from_json(value: list[dict[str, Any]]) -> tuple[Check, ...]:
    """The inverse of `checks_to_json`.

    Raises:
        CatalogError: a check is not one that this release knows.
    """
    return tuple(_check_from_json(item) for item in value)


def _check_from_json(value: dict[str, Any]) -> Check:
    match value["check"]:
        case "not_null":
            return NotNull(value["column"])
        case "unique":
            return Unique(tuple(value["columns"]))
        case "accepted":
            return Accepted(value["column"], tuple(value["values"]))
        case "rows":
            return Condition(value["condition"])
        case other:
            raise CatalogError(f"the catalog names an unknown check, {other}", hint="Upgrade Kilonova")


def directory_to_json(directory: Directory) -> dict[str, Any]:
    """A watched directory with its parameters."""
    return {
        "place": directory.place,
        "pattern": directory.pattern,
        "format": directory.format,
        "options": dict(directory.options),
        "every": directory.every,
        "settle": directory.settle,
    }


def directory_from_json(value: dict[str, Any]) -> Directory:
    """The inverse of `directory_to_json`."""
    return Directory(**{**value, "options": tuple(sorted(value["options"].items()))})


def schedule_to_json(schedule: Schedule | None) -> dict[str, Any] | None:
    """A schedule with its parameter."""
    match schedule:
        case None:
            return None
        case Every(seconds):
            return {"every": seconds}
        case Cron(expression, zone):
            return {"cron": expression, "zone": zone}
        case _:
            assert_never(schedule)


def schedule_from_json(value: dict[str, Any] | None) -> Schedule | None:
    """The inverse of `schedule_to_json`.

    Raises:
        CatalogError: the schedule is not one that this release knows.
    """
    match value:
        case None:
            return None
        case {"every": seconds}:
            return Every(seconds)
        case {"cron": expression}:
            return Cron(expression, value.get("zone", "UTC"))
        case other:
            raise CatalogError(f"the catalog names an unknown schedule, {other}", hint="Upgrade Kilonova")


def trigger_to_json(trigger: Trigger) -> dict[str, Any]:
    """A trigger with its parameters."""
    match trigger:
        case Arrival(channel=channel, rows=rows, seconds=seconds):
            return {"trigger": "arrival", "channel": channel, "rows": rows, "seconds": seconds}
        case Clock(schedule=schedule, missed=missed):
            return {"trigger": "clock", "schedule": schedule_to_json(schedule), "missed": missed.value}
        case After(binding=binding, reached=reached):
            return {"trigger": "after", "binding": binding, "reached": reached.value}
        case AllOf(triggers):
            return {"trigger": "all", "triggers": [trigger_to_json(item) for item in triggers]}
        case _:
            assert_never(trigger)


def trigger_from_json(value: dict[str, Any]) -> Trigger:
    """The inverse of `trigger_to_json`.

    Raises:
        CatalogError: the trigger is not one that this release knows.
    """
    if value["trigger"] == "all":
        return AllOf(tuple(_simple_from_json(item) for item in value["triggers"]))
    return _simple_from_json(value)


def _simple_from_json(value: dict[str, Any]) -> Simple:
    match value["trigger"]:
        case "arrival":
            return Arrival(channel=value["channel"], rows=value["rows"], seconds=value["seconds"])
        case "clock" if (schedule := schedule_from_json(value["schedule"])) is not None:
            return Clock(schedule=schedule, missed=Missed(value["missed"]))
        case "after":
            return After(binding=value["binding"], reached=Reached(value["reached"]))
        case other:
            raise CatalogError(f"the catalog names an unknown trigger, {other}", hint="Upgrade Kilonova")


def state_to_json(state: State) -> list[list[Any]]:
    """What a trigger remembers, as [[seen, time, [occurrence, its time]], …]."""
    return [
        [
            one.seen,
            None if one.time is None else one.time.isoformat(),
            None if one.fired is None else [one.fired.name, one.fired.time.isoformat()],
        ]
        for one in state
    ]


def state_from_json(value: list[list[Any]]) -> State:
    """The inverse of `state_to_json`."""
    return tuple(
        Armed(
            seen=seen,
            time=None if time is None else datetime.fromisoformat(time),
            fired=None if fired is None else Occurrence(fired[0], datetime.fromisoformat(fired[1])),
        )
        for seen, time, fired in value
    )


def headway_to_json(headway: Headway) -> dict[str, Any]:
    """How far a run has come, with [step, done, total] of what goes on."""
    going = [[each.step, each.amount.done, each.amount.total] for each in headway.going]
    return {"steps": headway.steps, "ended": headway.ended, "going": going}


def headway_from_json(value: dict[str, Any]) -> Headway:
    """The inverse of `headway_to_json`."""
    going = tuple(Going(step, Amount(done, total)) for step, done, total in value["going"])
    return Headway(steps=value["steps"], ended=value["ended"], going=going)


def estimates_to_json(estimates: Mapping[Way, float]) -> dict[str, float]:
    """What ways are estimated to take, in seconds."""
    return {way.value: seconds for way, seconds in estimates.items()}


def estimates_from_json(value: dict[str, float]) -> dict[Way, float]:
    """The inverse of `estimates_to_json`."""
    return {Way(way): seconds for way, seconds in value.items()}


def version_to_json(version: Version) -> list[Any]:
    """A version as [[path, [[logic, first, last], …]], …]."""
    return [
        [list(path), [[list(item.logic), item.first, item.last] for item in entry]] for path, entry in version.entries
    ]


def version_from_json(value: list[Any]) -> Version:
    """The inverse of `version_to_json`."""
    return Version(
        tuple(
            (tuple(path), tuple(Reflection(tuple(logic), first, last) for logic, first, last in entry))
            for path, entry in value
        )
    )


def outlet_to_json(outlet: Outlet) -> dict[str, Any]:
    """An outlet with its parameters, but its name."""
    match outlet:
        case Webhook(url=url, kinds=kinds, binding=binding, secret=secret):
            named = sorted(kind.value for kind in kinds)
            return {"outlet": "webhook", "url": url, "kinds": named, "binding": binding, "secret": secret}
        case Lineage():
            return {"outlet": "lineage"}
        case _:
            assert_never(outlet)


def outlet_from_json(name: str, value: dict[str, Any]) -> Outlet:
    """The inverse of `outlet_to_json`.

    Raises:
        CatalogError: the outlet is not one that this release knows.
    """
    match value["outlet"]:
        case "webhook":
            kinds = frozenset(map(EventKind, value["kinds"]))
            return Webhook(name=name, url=value["url"], kinds=kinds, binding=value["binding"], secret=value["secret"])
        case "lineage":
            return Lineage()
        case other:
            raise CatalogError(f"the catalog names an unknown outlet, {other}", hint="Upgrade Kilonova")
