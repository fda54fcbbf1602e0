"""A path of a workflow leads from a source channel through tasks to a channel; users name it by a few of its names.

In versions a path has every task, also those of relations that are materialized for a view. Its *declared* form has the
view instead of them, so that it stays the same however a view is maintained. Several paths may have one declared form.
"""

from __future__ import annotations

from collections.abc import Mapping

from kilonova.errors import DeclarationError
from kilonova.model.version import Path
from kilonova.model.workflow import WorkflowDefinition

SEPARATOR = "›"
"""Text between the names of a path."""

_LISTED = 8
"""Number of paths that an error lists, at most."""


Names = str | tuple[str, ...] | list[str]
"""Names in a path: as text, or one by one."""


def path_of(text: Names) -> Path:
    """Return the names in a path that is given as text, or as several names.

    >>> path_of("orders"), path_of("orders/daily"), path_of("orders › daily"), path_of(["orders", "daily"])
    (('orders',), ('orders', 'daily'), ('orders', 'daily'), ('orders', 'daily'))
    """
    parts = text.replace(SEPARATOR, "/").split("/") if isinstance(text, str) else text
    return tuple(name for part in parts if (name := part.strip()))


def describe_path(path: Path) -> str:
    """Return a path as text.

    >>> describe_path(("orders", "daily"))
    'orders›daily'
    """
    return SEPARATOR.join(path)


def declared_form(path: Path, views: Mapping[str, str | None]) -> Path:
    """Return a path with views in the place of the tasks that maintain them.

    Args:
        path: a path, with all tasks.
        views: the view of each task that maintains one or a relation that is materialized for it.

    >>> declared_form(("orders", "totals__1", "totals", "report"), {"totals__1": "totals", "totals": "totals"})
    ('orders', 'totals', 'report')
    """
    names = [path[0], *(views.get(task) or task for task in path[1:])]
    return tuple(name for place, name in enumerate(names) if place < 2 or name != names[place - 1])


def paths_to(channel: str, workflow: WorkflowDefinition) -> tuple[Path, ...]:
    """Return the paths from source channels to a channel, in their declared form, sorted.

    Rows are ingested into a channel that no task writes, and into one with several writers: a path begins there.
    """
    return tuple(sorted({declared_form(route[0::2], _views(workflow)) for route in _routes(channel, workflow)}))


def _views(workflow: WorkflowDefinition) -> dict[str, str | None]:
    return {task.name: task.view for task in workflow.tasks}


def _routes(channel: str, workflow: WorkflowDefinition) -> frozenset[tuple[str, ...]]:
    """Return the routes from source channels to a channel: the names of channels and tasks, in turn.

    A route is (source, source, task, channel, task, channel, …): each name of the path with the channel that it writes.
    """
    known: dict[str, frozenset[tuple[str, ...]]] = {}

    def leading_to(name: str) -> frozenset[tuple[str, ...]]:
        if name not in known:
            writers = workflow.writers(name)
            found = {
                (*route, task.name, name)
                for task in writers
                for read in task.reads
                if read not in task.writes
                for route in leading_to(read)
            }
            ingested = not writers or workflow.channel(name).several_writers
            known[name] = frozenset(found | {(name, name)} if ingested else found)
        return known[name]

    return leading_to(channel)


def resolve_path(channel: str, given: Path, workflow: WorkflowDefinition) -> Path:
    """Return the path to a channel that is meant by some of its names.

    The first name is that of its source channel; the others are of tasks, views or channels on the way, in their order.

    Args:
        channel: the channel.
        given: the names.
        workflow: the workflow, with all tasks on the way.

    Raises:
        DeclarationError: there is no such path, or there are several.
    """
    views = _views(workflow)
    routes = [(declared_form(route[0::2], views), route) for route in sorted(_routes(channel, workflow))]
    paths = sorted({path for path, _ in routes if len(path) > 1})
    found = [path for path in paths if path == given]
    found = found or [
        path for path in paths if any(own == path and _is_meant(own, route, given) for own, route in routes)
    ]
    if len(found) == 1:
        return found[0]
    text = describe_path(given)
    if not paths:
        raise DeclarationError(
            f"there is no path from {text}: rows are ingested into the channel",
            channel=channel,
            hint="Set the bound on a channel that a task writes",
        )
    if not found:
        more = f" and {len(paths) - _LISTED} others" if len(paths) > _LISTED else ""
        hint = f"The paths are {', '.join(map(describe_path, paths[:_LISTED]))}{more}"
        raise DeclarationError(f"there is no path from {text}", channel=channel, hint=hint)
    raise DeclarationError(
        f"several paths lead from {text}",
        channel=channel,
        hint=f"Name a task on the way: {', '.join(map(describe_path, found[:_LISTED]))}",
    )


def _is_meant(path: Path, route: tuple[str, ...], given: Path) -> bool:
    """Return whether a path has the given names, in their order: first its source, then tasks, views or channels."""
    if path[:1] != given[:1]:
        return False
    for names in (path, route):
        rest = iter(names[1:])
        if all(name in rest for name in given[1:]):
            return True
    return False
