"""Planned changes of bounds: which a workflow declares, compared with those that are registered.

A limit that was set at run time stays as long as the declared one does not change. A bound that was only set at run
time stays until it is removed, or until its path no longer exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kilonova.catalog.bounds import RegisteredBound, bound_of
from kilonova.errors import DeclarationError
from kilonova.model.bound import Bound, StalenessBound, describe_bound
from kilonova.model.schedule import duration
from kilonova.model.version import Path
from kilonova.model.workflow import WorkflowDefinition
from kilonova.model.workflow_path import paths_to, resolve_path
from kilonova.service.bound_feasibility import refuse_unkeepable
from kilonova.service.plan_action import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundChange:
    """Planned change of a bound, with its complete path, and the changes as text for users."""

    bound: Bound
    action: Action
    detail: str

    @property
    def path(self) -> Path:
        """The path of a bound on staleness; empty for one on inconsistency."""
        return path_of_bound(self.bound)


def path_of_bound(bound: Bound) -> Path:
    """Return the path of a bound on staleness; an empty one for a bound on inconsistency."""
    return bound.path if isinstance(bound, StalenessBound) else ()


def complete_bound(bound: Bound, whole: WorkflowDefinition) -> Bound:
    """Return a bound with its complete path.

    Args:
        bound: the bound, whose path has as many names as tell it from others.
        whole: all workflows, as one.

    Raises:
        DeclarationError: there is no such path, or there are several; or rows are ingested into the channel.
    """
    if isinstance(bound, StalenessBound):
        return replace(bound, path=resolve_path(bound.channel, bound.path, whole))
    if not whole.writers(bound.channel) or whole.channel(bound.channel).several_writers:
        raise DeclarationError(
            "the inconsistency of a channel cannot be bounded into which rows are ingested: ingests would be refused",
            channel=bound.channel,
            hint="Set the bound on a channel that one task writes",
        )
    return bound


def plan_bounds(
    workflow: WorkflowDefinition,
    whole: WorkflowDefinition,
    registered: Iterable[RegisteredBound],
    owners: Mapping[str, str],
) -> tuple[BoundChange, ...]:
    """Return the changes of bounds that registering a workflow makes.

    Args:
        workflow: the workflow.
        whole: all workflows, as one.
        registered: the registered bounds.
        owners: the workflow that each registered channel belongs to.

    Raises:
        DeclarationError: a bound is declared twice, on a channel of another workflow, or cannot be kept, or its path
            does not exist.
    """
    declared: dict[tuple[str, Path], Bound] = {}
    for each in workflow.bounds:
        if (owner := owners.get(each.channel, workflow.name)) != workflow.name:
            problem = f"the channel belongs to the workflow {owner}, which declares its bounds"
            raise DeclarationError(problem, channel=each.channel, hint="Declare the bound there")
        bound = complete_bound(each, whole)
        key = bound.channel, path_of_bound(bound)
        if key in declared:
            problem = f"the bound is declared twice: {describe_bound(bound)}"
            raise DeclarationError(problem, channel=bound.channel, hint="Remove one of them")
        declared[key] = bound
    known = {(each.channel, each.path): each for each in registered}
    _refuse(declared, known, whole)
    changes = [_declared_change(bound, known.get(key)) for key, bound in declared.items()]
    left = (each for key, each in known.items() if key not in declared)
    dropped = (_drop(each, owners.get(each.channel) == workflow.name, whole) for each in left)
    return (*changes, *filter(None, dropped))


def _refuse(
    declared: Mapping[tuple[str, Path], Bound],
    known: Mapping[tuple[str, Path], RegisteredBound],
    whole: WorkflowDefinition,
) -> None:
    """Check that added and changed bounds can be kept, together with the others."""
    changed = {key: bound for key, bound in declared.items() if key not in known or known[key].declared != bound.limit}
    applying = {key: each.bound for key, each in known.items() if each.bound is not None} | changed
    names = {channel.name for channel in whole.channels}
    possible = [each for each in applying.values() if each.channel in names]
    refuse_unkeepable(list(dict.fromkeys(channel for channel, _ in changed)), possible, whole)


def _declared_change(bound: Bound, known: RegisteredBound | None) -> BoundChange:
    text = describe_bound(bound)
    if known is None:
        return BoundChange(bound=bound, action=Action.ADD, detail=text)
    if known.declared == bound.limit:
        return BoundChange(bound=bound, action=Action.KEEP, detail=text + _set_at_run_time(known, "; at run time"))
    before = "" if known.declared is None else f", instead of {duration(round(known.declared.total_seconds()))}"
    detail = text + before + _set_at_run_time(known, "; replaces what was set at run time:")
    return BoundChange(bound=bound, action=Action.CHANGE, detail=detail)


def _set_at_run_time(known: RegisteredBound, words: str) -> str:
    """Return the limit of a bound that was set at run time, as text; empty if it is as declared."""
    if known.changed is None:
        return ""
    return f"{words} {'removed' if known.bound is None else describe_bound(known.bound)}"


def _drop(known: RegisteredBound, own: bool, whole: WorkflowDefinition) -> BoundChange | None:
    """Return the change that drops a registered bound which the workflow does not declare; None if it stays."""
    names = {channel.name for channel in whole.channels}
    if own and known.declared is not None:
        why = "no longer declared"
    elif known.channel in names and known.path and known.path not in paths_to(known.channel, whole):
        why = "its path no longer exists"
    elif known.channel in names and not known.path and not whole.writers(known.channel):
        why = "no task writes the channel any more"
    else:
        return None
    limit = known.limit if known.limit is not None else known.declared
    assert limit is not None
    bound = bound_of(known.channel, known.path, limit)
    return BoundChange(bound=bound, action=Action.DROP, detail=f"{describe_bound(bound)}; {why}")
