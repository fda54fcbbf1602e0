"""Conversion of the model's values to JSON columns and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, assert_never

from kilonova.errors import CatalogError
from kilonova.model.block import External, FileGroup, StoredFile
from kilonova.model.check import AcceptedValues, Check, NotNull, RowCondition, Unique
from kilonova.model.column_rules import ColumnRules, OnNewColumn
from kilonova.model.compaction_policy import CostBased, Manual, MaxDeltas, Policy
from kilonova.model.encoding import (
    Append,
    BlockEncoding,
    Changes,
    Columns,
    Custom,
    Encoding,
    Increment,
    Removal,
    Upsert,
)
from kilonova.model.event import EventKind
from kilonova.model.progress import RunProgress, StepProgress, TaskCount
from kilonova.model.required_columns import RequiredColumn
from kilonova.model.run import RefreshMethod
from kilonova.model.schedule import Cron, Every, Schedule
from kilonova.model.schema import Column, Schema
from kilonova.model.subscription import Lineage, Subscription, Webhook
from kilonova.model.trigger import (
    AllOf,
    ArrivalTrigger,
    Condition,
    ConditionState,
    MisfirePolicy,
    Occurrence,
    RunOutcome,
    RunTrigger,
    TimeTrigger,
    Trigger,
    TriggerState,
)
from kilonova.model.version import Reflection, Version
from kilonova.model.watched_directory import WatchedDirectory
from kilonova.model.watched_file import Fingerprint
from kilonova.schedule.run_scope import RunScope


def schema_to_json(schema: Schema) -> list[list[Any]]:
    """Encode a schema as [[name, type], …].

    A column added at a point after 0 is [name, type, since], one that was renamed [name, type, since, added_as].
    """
    return [_column_to_json(column) for column in schema.columns]


def _column_to_json(column: Column) -> list[Any]:
    if column.added_as is not None:
        return [column.name, column.type, column.since, column.added_as]
    return [column.name, column.type, column.since] if column.since else [column.name, column.type]


def schema_from_json(value: list[list[Any]]) -> Schema:
    """Decode the output of `schema_to_json`."""
    return Schema(tuple(Column(*column) for column in value))


def numbers_to_json(numbers: Iterable[int]) -> list[list[int]]:
    """Encode numbers as ranges [[first, last], …].

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
    """Decode the output of `numbers_to_json`."""
    return {number for first, last in value for number in range(first, last + 1)}


def external_to_json(external: External) -> dict[str, Any]:
    """Encode external files, with their fingerprints."""
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
    """Decode the output of `external_to_json`."""
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
    """Encode the files of a block as [[name, size, rows, checksum], …]."""
    return [[file.name, file.size, file.rows, file.checksum] for file in files]


def stored_from_json(value: list[list[Any]]) -> tuple[StoredFile, ...]:
    """Decode the output of `stored_to_json`."""
    return tuple(StoredFile(name=name, size=size, rows=rows, checksum=checksum) for name, size, rows, checksum in value)


def encoding_to_json(encoding: BlockEncoding) -> dict[str, Any]:
    """Encode an encoding with its parameters."""
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
        case Removal(key, condition):
            return {"encoding": "removal", "key": list(key), "condition": condition}
        case _:
            assert_never(encoding)


def policy_to_json(policy: Policy) -> dict[str, Any]:
    """Encode the policy for automatic compaction of a channel."""
    match policy:
        case CostBased(max_amplification=most):
            return {"policy": "cost-based", "max_amplification": most}
        case MaxDeltas(deltas=deltas):
            return {"policy": "max-deltas", "deltas": deltas}
        case Manual():
            return {"policy": "manual"}
        case _:
            assert_never(policy)


def policy_from_json(value: dict[str, Any] | None) -> Policy:
    """Decode the output of `policy_to_json`; None stands for the default, `CostBased`."""
    match value:
        case None:
            return CostBased()
        case {"policy": "cost-based", "max_amplification": most}:
            return CostBased(max_amplification=most)
        case {"policy": "max-deltas", "deltas": deltas}:
            return MaxDeltas(deltas=deltas)
        case {"policy": "manual"}:
            return Manual()
        case _:
            raise CatalogError(
                f"{value} is not a compaction policy that this release knows",
                hint="Use the release that wrote it",
            )


def block_encoding_from_json(value: dict[str, Any]) -> BlockEncoding:
    """Decode the output of `encoding_to_json` for a block.

    Raises:
        CatalogError: this release does not know the encoding.
    """
    if value["encoding"] == "removal":
        return Removal(tuple(value["key"]), value["condition"])
    return encoding_from_json(value)


def encoding_from_json(value: dict[str, Any]) -> Encoding:
    """Decode the output of `encoding_to_json`.

    Raises:
        CatalogError: this release does not know the encoding.
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


def requires_to_json(required: Iterable[RequiredColumn]) -> list[list[str | None]]:
    """Return required columns as JSON."""
    return [[each.channel, each.name, each.type] for each in required]


def requires_from_json(value: list[list[Any]]) -> tuple[RequiredColumn, ...]:
    """Return required columns from JSON."""
    return tuple(RequiredColumn(*each) for each in value)


def checks_to_json(checks: tuple[Check, ...]) -> list[dict[str, Any]]:
    """Encode checks with their parameters."""
    return [_check_to_json(check) for check in checks]


def _check_to_json(check: Check) -> dict[str, Any]:
    match check:
        case NotNull(column):
            return {"check": "not_null", "column": column}
        case Unique(columns):
            return {"check": "unique", "columns": list(columns)}
        case AcceptedValues(column, values):
            return {"check": "accepted_values", "column": column, "values": list(values)}
        case RowCondition(text):
            return {"check": "expression", "condition": text}
        case _:
            assert_never(check)


def checks_from_json(value: list[dict[str, Any]]) -> tuple[Check, ...]:
    """Decode the output of `checks_to_json`.

    Raises:
        CatalogError: this release does not know a check.
    """
    return tuple(_check_from_json(item) for item in value)


def _check_from_json(value: dict[str, Any]) -> Check:
    match value["check"]:
        case "not_null":
            return NotNull(value["column"])
        case "unique":
            return Unique(tuple(value["columns"]))
        case "accepted_values":
            return AcceptedValues(value["column"], tuple(value["values"]))
        case "expression":
            return RowCondition(value["condition"])
        case other:
            raise CatalogError(f"the catalog names an unknown check, {other}", hint="Upgrade Kilonova")


def rules_to_json(rules: ColumnRules) -> dict[str, Any]:
    """Encode the column rules of a channel."""
    return {
        "on_new_column": rules.on_new_column.value,
        "rename": dict(rules.rename),
        "defaults": dict(rules.defaults),
    }


def rules_from_json(value: dict[str, Any]) -> ColumnRules:
    """Decode the output of `rules_to_json`."""
    return ColumnRules(
        on_new_column=OnNewColumn(value["on_new_column"]),
        rename=tuple(sorted(value["rename"].items())),
        defaults=tuple(sorted(value["defaults"].items())),
    )


def directory_to_json(directory: WatchedDirectory) -> dict[str, Any]:
    """Encode a watched directory with its parameters."""
    return {
        "location": directory.location,
        "pattern": directory.pattern,
        "format": directory.format,
        "options": dict(directory.options),
        "poll_interval": directory.poll_interval,
        "settle_time": directory.settle_time,
        "in_order": directory.in_order,
    }


def directory_from_json(value: dict[str, Any]) -> WatchedDirectory:
    """Decode the output of `directory_to_json`."""
    return WatchedDirectory(**{**value, "options": tuple(sorted(value["options"].items()))})


def schedule_to_json(schedule: Schedule | None) -> dict[str, Any] | None:
    """Encode a schedule with its parameters."""
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
    """Decode the output of `schedule_to_json`.

    Raises:
        CatalogError: this release does not know the schedule.
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
    """Encode a trigger with its parameters."""
    match trigger:
        case ArrivalTrigger(channel=channel, rows=rows, seconds=seconds):
            return {"trigger": "arrival", "channel": channel, "rows": rows, "seconds": seconds}
        case TimeTrigger(schedule=schedule, missed=missed):
            return {"trigger": "clock", "schedule": schedule_to_json(schedule), "missed": missed.value}
        case RunTrigger(binding=binding, reached=reached):
            return {"trigger": "after", "binding": binding, "reached": reached.value}
        case AllOf(triggers):
            return {"trigger": "all", "triggers": [trigger_to_json(item) for item in triggers]}
        case _:
            assert_never(trigger)


def trigger_from_json(value: dict[str, Any]) -> Trigger:
    """Decode the output of `trigger_to_json`.

    Raises:
        CatalogError: this release does not know the trigger.
    """
    if value["trigger"] == "all":
        return AllOf(tuple(_simple_from_json(item) for item in value["triggers"]))
    return _simple_from_json(value)


def _simple_from_json(value: dict[str, Any]) -> Condition:
    match value["trigger"]:
        case "arrival":
            return ArrivalTrigger(channel=value["channel"], rows=value["rows"], seconds=value["seconds"])
        case "clock" if (schedule := schedule_from_json(value["schedule"])) is not None:
            return TimeTrigger(schedule=schedule, missed=MisfirePolicy(value["missed"]))
        case "after":
            return RunTrigger(binding=value["binding"], reached=RunOutcome(value["reached"]))
        case other:
            raise CatalogError(f"the catalog names an unknown trigger, {other}", hint="Upgrade Kilonova")


def state_to_json(state: TriggerState) -> list[list[Any]]:
    """Encode the state of a trigger as [[seen, time, [occurrence, its time]], …]."""
    return [
        [
            one.seen,
            None if one.time is None else one.time.isoformat(),
            None if one.fired is None else [one.fired.name, one.fired.time.isoformat()],
        ]
        for one in state
    ]


def state_from_json(value: list[list[Any]]) -> TriggerState:
    """Decode the output of `state_to_json`."""
    return tuple(
        ConditionState(
            seen=seen,
            time=None if time is None else datetime.fromisoformat(time),
            fired=None if fired is None else Occurrence(fired[0], datetime.fromisoformat(fired[1])),
        )
        for seen, time, fired in value
    )


def progress_to_json(progress: RunProgress) -> dict[str, Any]:
    """Encode the progress of a run, with [step, done, total] of each running step."""
    going = [[each.step, each.amount.done, each.amount.total] for each in progress.going]
    return {"steps": progress.steps, "ended": progress.ended, "going": going}


def progress_from_json(value: dict[str, Any]) -> RunProgress:
    """Decode the output of `progress_to_json`."""
    going = tuple(StepProgress(step, TaskCount(done, total)) for step, done, total in value["going"])
    return RunProgress(steps=value["steps"], ended=value["ended"], going=going)


def scope_to_json(scope: RunScope) -> dict[str, Any]:
    """Encode the scope of a run."""
    return {"until": dict(scope.until), "tasks": list(scope.tasks), "variants": dict(scope.variants)}


def scope_from_json(value: dict[str, Any]) -> RunScope:
    """Decode the output of `scope_to_json`."""
    return RunScope(until=value["until"], tasks=tuple(value["tasks"]), variants=value["variants"])


def estimates_to_json(estimates: Mapping[RefreshMethod, float]) -> dict[str, float]:
    """Encode the estimated durations of refresh methods, in seconds."""
    return {method.value: seconds for method, seconds in estimates.items()}


def estimates_from_json(value: dict[str, float]) -> dict[RefreshMethod, float]:
    """Decode the output of `estimates_to_json`."""
    return {RefreshMethod(method): seconds for method, seconds in value.items()}


def version_to_json(version: Version) -> list[Any]:
    """Encode a version as [[path, [[logic, first, last], …]], …]."""
    return [
        [list(path), [[list(item.logic), item.first, item.last] for item in entry]] for path, entry in version.entries
    ]


def version_from_json(value: list[Any]) -> Version:
    """Decode the output of `version_to_json`."""
    return Version(
        tuple(
            (tuple(path), tuple(Reflection(tuple(logic), first, last) for logic, first, last in entry))
            for path, entry in value
        )
    )


def subscription_to_json(subscription: Subscription) -> dict[str, Any]:
    """Encode a subscription with its parameters, except its name."""
    match subscription:
        case Webhook(url=url, kinds=kinds, binding=binding, secret=secret):
            named = sorted(kind.value for kind in kinds)
            return {"outlet": "webhook", "url": url, "kinds": named, "binding": binding, "secret": secret}
        case Lineage():
            return {"outlet": "lineage"}
        case _:
            assert_never(subscription)


def subscription_from_json(name: str, value: dict[str, Any]) -> Subscription:
    """Decode the output of `subscription_to_json`.

    Raises:
        CatalogError: this release does not know the subscription.
    """
    match value["outlet"]:
        case "webhook":
            kinds = frozenset(map(EventKind, value["kinds"]))
            return Webhook(name=name, url=value["url"], kinds=kinds, binding=value["binding"], secret=value["secret"])
        case "lineage":
            return Lineage()
        case other:
            raise CatalogError(f"the catalog names an unknown subscription, {other}", hint="Upgrade Kilonova")
