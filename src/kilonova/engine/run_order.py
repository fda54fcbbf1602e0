"""Order of the runs of several bindings: each after those whose output it reads, independent ones concurrently."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from kilonova.errors import Conflict, KilonovaError
from kilonova.model.task import Task

Part = TypeVar("Part")
Done = TypeVar("Done")

AT_ONCE = 4
"""Maximum number of bindings that run concurrently, if they do not wait for each other."""


@dataclass(frozen=True, slots=True)
class RunOrder:
    """The order in which bindings run.

    Attributes:
        waits_for: the bindings in order, each with those that write what it reads and run before it.
        circular: whether a binding also reads what a later one writes, so that it has new input afterwards.
    """

    waits_for: Mapping[str, frozenset[str]]
    circular: bool


def run_order(tasks: Iterable[Task], bindings: Mapping[str, str]) -> RunOrder:
    """Return the order of bindings, each after those whose output it reads.

    Where bindings read each other's output, each is after those whose output its first task reads.

    Args:
        tasks: their tasks, each after those whose output it reads.
        bindings: the binding of each task.
    """
    places: dict[str, int] = {}
    writers: dict[str, set[str]] = {}
    found: dict[str, set[str]] = {}
    for task in tasks:
        own = bindings[task.name]
        places.setdefault(own, len(places))
        found.setdefault(own, set())
        for channel in task.reads:
            found[own] |= writers.get(channel, set()) - {own}
        for channel in task.writes:
            writers.setdefault(channel, set()).add(own)
    with suppress(CycleError):
        TopologicalSorter(found).prepare()
        return RunOrder({name: frozenset(found[name]) for name in places}, circular=False)
    earlier = {name: frozenset(each for each in found[name] if places[each] < places[name]) for name in places}
    return RunOrder(earlier, any(len(earlier[name]) < len(found[name]) for name in places))


def run_in_order(
    waits_for: Mapping[str, frozenset[str]],
    parts: Mapping[str, Part],
    run: Callable[[Part], Done],
    interrupt: Callable[[], object],
) -> tuple[list[Done], dict[str, KilonovaError]]:
    """Run bindings; the failure of one does not prevent others from running.

    A binding that is in conflict with another run is retried once only it and the bindings that wait for it are left,
    so that those still run after it.

    Args:
        waits_for: the bindings in order, each with those that have to end before it begins.
        parts: the argument of `run` for each binding.
        run: function that runs a binding.
        interrupt: called if this function is interrupted, to end the runs in progress.

    Returns:
        The results of `run`, in the order in which the runs ended, and the errors of failed runs, by binding.
    """
    done: list[Done] = []
    failed: dict[str, KilonovaError] = {}
    order = TopologicalSorter(waits_for)
    order.prepare()
    ready: deque[str] = deque()
    busy: list[str] = []
    tried_again: set[str] = set()
    running: dict[Future[Done], str] = {}
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="binding") as pool:
        try:
            while order.is_active():
                ready.extend(order.get_ready())
                if not ready and not running:
                    ready.extend(busy)
                    tried_again.update(busy)
                    busy.clear()
                while ready and len(running) < AT_ONCE:
                    name = ready.popleft()
                    running[pool.submit(run, parts[name])] = name
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    name = running.pop(future)
                    try:
                        done.append(future.result())
                    except KilonovaError as error:
                        if isinstance(error, Conflict) and name not in tried_again:
                            busy.append(name)
                            continue
                        failed[name] = error
                    order.done(name)
        except BaseException:
            interrupt()
            pool.shutdown(cancel_futures=True)
            raise
    return done, failed
