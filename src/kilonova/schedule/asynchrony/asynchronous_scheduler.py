"""The scheduler: plans that repair violated bounds at minimal cost (asynchronous scheduling, section 6).

A plan is made when a bound on an output is violated, and so only the channels upstream of such outputs are searched.
Of each violated output the cheapest block is chosen that its consumers accept, that continues what they have, and that
keeps all limits; the plan has every invocation that any of these needs. Where several bounds of an output are violated,
blocks that repair them in turn are an alternative.

The pruning passes are heuristics. A block that overkill pruning leaves out may be the only one that is consistent with
another input, so that where no plan is found the search is repeated without that pass, and then without the long-term
provision and the propagated limits: what the exact passes keep is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from kilonova.model.bound import Bound, BoundState, StalenessBound
from kilonova.schedule.asynchrony.block_search import BlockSearch, SearchRules
from kilonova.schedule.asynchrony.bound_states import bound_states
from kilonova.schedule.asynchrony.channel_limits import LimitCheck, Limits, declared_limits
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG, DataBlock
from kilonova.schedule.asynchrony.delta_chains import with_compulsory_chains
from kilonova.schedule.asynchrony.execution_plan import Alternative, ExecutionPlan, Invocation, UnmetOutput
from kilonova.schedule.asynchrony.frontiers import Frontiers, frontiers_of, reflected_upstream
from kilonova.schedule.asynchrony.old_blocks import without_inapplicable_deltas, without_old_blocks
from kilonova.schedule.asynchrony.optimized_blocks import OptimizedBlocks
from kilonova.schedule.asynchrony.overkill import overkill_rule
from kilonova.schedule.asynchrony.provenance import Newest, newest
from kilonova.schedule.asynchrony.pruning import ALL_PASSES, Pruning
from kilonova.schedule.asynchrony.scheduling_state import OutputState, SchedulingState
from kilonova.schedule.asynchrony.search_entry import Entry, invocations_of
from kilonova.schedule.asynchrony.search_index import SearchIndex, index_of
from kilonova.schedule.asynchrony.state_changes import continuation, with_blocks
from kilonova.schedule.asynchrony.unmet import explain_unmet
from kilonova.schedule.asynchrony.upstream_limits import propagated_limits
from kilonova.schedule.asynchrony.workflow_model import WorkflowModel

_RELAXED = (
    frozenset[Pruning](),
    frozenset({Pruning.OVERKILL}),
    frozenset({Pruning.OVERKILL, Pruning.LONG_TERM, Pruning.UPSTREAM_LIMITS}),
)
"""The passes that are left out in turn until there is a plan."""

_SHOWN = 8
"""Number of alternatives that a plan records of an output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """A plan found with some passes; `remaining` is the number of bounds that stay violated."""

    passes: frozenset[Pruning]
    invocations: tuple[Invocation, ...] = ()
    cost: float = 0.0
    alternatives: tuple[Alternative, ...] = ()
    unmet: tuple[UnmetOutput, ...] = ()
    remaining: int


Blocks = Mapping[str, tuple[DataBlock, ...]]


@dataclass(frozen=True)
class AsynchronousScheduler:
    """Scheduler of a workflow.

    Attributes:
        workflow: the workflow.
        bounds: its bounds.
        passes: the pruning passes.
        alternatives: whether plans list alternatives, for which the search goes on once the cheapest plan is known.

    Raises:
        DeclarationError: a bound names a channel or a path that does not exist.
    """

    workflow: WorkflowModel
    bounds: tuple[Bound, ...]
    passes: frozenset[Pruning] = ALL_PASSES
    alternatives: bool = False

    def __post_init__(self) -> None:
        assert self.declared is not None  # refuses unknown channels and paths

    @cached_property
    def declared(self) -> Limits:
        """The limits of the bounds."""
        return declared_limits(self.workflow, self.bounds)

    @cached_property
    def propagated(self) -> Limits:
        """The limits with those of the channels downstream."""
        return propagated_limits(self.workflow, self.declared)

    @cached_property
    def index(self) -> SearchIndex:
        """The index of the workflow."""
        return index_of(self.workflow)

    def states(self, state: SchedulingState) -> tuple[BoundState, ...]:
        """Return the states of the bounds on outputs."""
        return bound_states(self.workflow, self.bounds, state)

    def plan(self, state: SchedulingState) -> ExecutionPlan:
        """Return a plan that repairs the violated bounds; an empty one if none is violated."""
        violated = self._violated(state)
        if not violated:
            return ExecutionPlan()
        attempts: list[_Attempt] = []
        for relaxed in _RELAXED:
            if attempts and not relaxed & self.passes:
                continue
            attempts.append(self._attempt(state, violated, self.passes - relaxed))
            if not attempts[-1].unmet:
                break
        best = min(attempts, key=lambda attempt: (attempt.remaining, attempt.cost))
        return ExecutionPlan(
            invocations=best.invocations,
            cost=best.cost,
            violated=violated,
            alternatives=best.alternatives,
            unmet=best.unmet,
            relaxed=tuple(sorted(each.value for each in self.passes - best.passes)),
        )

    def _violated(self, state: SchedulingState) -> tuple[Bound, ...]:
        return tuple(each.bound for each in self.states(state) if each.violated)

    def _attempt(self, state: SchedulingState, violated: tuple[Bound, ...], passes: frozenset[Pruning]) -> _Attempt:
        """Return the cheaper of two ways to repair bounds: by one block of each output, or by one block after another.

        Where several bounds of an output are violated, blocks that repair one each can be cheaper than one that repairs
        all, or be the only way.
        """
        search = self._search(state, violated, passes)
        at_once = self._repair(search, state, violated, passes, whole=True)
        several = max(Counter(bound.channel for bound in violated).values()) > 1
        if not at_once.unmet and not several:
            return at_once
        return min(
            (at_once, self._in_turn(search, state, violated, passes)),
            key=lambda attempt: (attempt.remaining, attempt.cost),
        )

    def _in_turn(
        self, search: BlockSearch, state: SchedulingState, violated: tuple[Bound, ...], passes: frozenset[Pruning]
    ) -> _Attempt:
        """Return an attempt that repairs bounds in turn, the cheapest first."""
        done = _Attempt(passes=passes, remaining=len(violated))
        while True:
            step = self._repair(search, state, violated, passes, whole=False)
            if not step.invocations and step.unmet:
                return replace(done, unmet=step.unmet)
            state = with_blocks(state, (each.writes for each in step.invocations), search.rules.declared)
            left = self._violated(state)
            done = _Attempt(
                passes=passes,
                invocations=done.invocations + step.invocations,
                cost=done.cost + step.cost,
                alternatives=done.alternatives + step.alternatives,
                remaining=len(left),
            )
            if not left:
                return done
            if len(left) >= len(violated):
                return replace(done, unmet=step.unmet or self._repair(search, state, left, passes, whole=True).unmet)
            violated = left
            search = self._search(state, violated, passes)

    def _search(self, state: SchedulingState, violated: tuple[Bound, ...], passes: frozenset[Pruning]) -> BlockSearch:
        """Search the channels upstream of violated bounds."""
        channels = self.workflow.upstream(bound.channel for bound in violated)
        frontiers = frontiers_of(self.workflow, state.outputs)
        blocks = self._candidates(state, channels, frontiers, passes)
        heads = {output.channel: output.head for output in state.outputs}
        rules = self._rules(state, channels, blocks, frontiers, passes)
        optimized = OptimizedBlocks(state.cursors)
        search = BlockSearch(self.workflow, self.index, state.times, rules, heads, optimized=optimized)
        if not self.alternatives:
            search.goals.update(_goals(search, state, violated))
        search.run(blocks)
        return search

    def _repair(
        self,
        search: BlockSearch,
        state: SchedulingState,
        violated: tuple[Bound, ...],
        passes: frozenset[Pruning],
        *,
        whole: bool,
    ) -> _Attempt:
        """Return the cheapest block of each output that repairs all of its violated bounds, or at least one."""
        chosen: list[Entry] = []
        alternatives: list[Alternative] = []
        unmet: list[UnmetOutput] = []
        remaining = 0
        for output in state.outputs:
            bounds = [bound for bound in violated if bound.channel == output.channel]
            if not bounds:
                continue
            entries = _repairing_entries(search, output, bounds, whole=whole)
            if not entries:
                unmet.append(explain_unmet(search, output, state))
                remaining += len(bounds)
                continue
            chosen.append(entries[0])
            for each in entries[1 : _SHOWN + 1]:
                steps = tuple(search.drafts[number].step for number in sorted(each.plan))
                alternatives.append(Alternative(output.channel, steps, each.cost))
        plan = frozenset[int]().union(*(entry.plan for entry in chosen))
        return _Attempt(
            passes=passes,
            invocations=invocations_of(plan, search.drafts, search.written),
            cost=sum(search.drafts[number].cost for number in plan),
            alternatives=tuple(alternatives),
            unmet=tuple(unmet),
            remaining=remaining,
        )

    def candidates(self, state: SchedulingState, channels: Iterable[str], passes: frozenset[Pruning]) -> Blocks:
        """Return the stored blocks of some channels that a search reads."""
        return self._candidates(state, channels, frontiers_of(self.workflow, state.outputs), passes)

    def _candidates(
        self, state: SchedulingState, channels: Iterable[str], frontiers: Frontiers, passes: frozenset[Pruning]
    ) -> Blocks:
        """Return the stored blocks of some channels that a search reads, given the frontiers."""
        wanted = frozenset(channels)
        found = {name: state.blocks.get(name, ()) for name in self.workflow.order if name in wanted}
        if Pruning.OLD_BLOCKS in passes:
            kept = {
                name: without_old_blocks(blocks, frontiers[name]) if frontiers.get(name) else blocks
                for name, blocks in found.items()
            }
            bases = {
                name: [newest(each.target) for each in blocks if each.kind == BASE] for name, blocks in kept.items()
            }
            reflected = reflected_upstream(self.workflow, bases)
            found = {
                name: without_inapplicable_deltas(blocks, frontiers[name], reflected[name])
                if frontiers.get(name)
                else blocks
                for name, blocks in kept.items()
            }
        if Pruning.DELTA_CHAINS in passes:
            found = {
                name: with_compulsory_chains(blocks, frontiers.get(name, frozenset())) for name, blocks in found.items()
            }
        return found

    def _rules(
        self,
        state: SchedulingState,
        channels: frozenset[str],
        blocks: Blocks,
        frontiers: Frontiers,
        passes: frozenset[Pruning],
    ) -> SearchRules:
        """Return what a search leaves out."""
        paths = self.workflow.paths
        declared = LimitCheck(paths, state.times, state.now, self.declared)
        propagated = LimitCheck(paths, state.times, state.now, self.propagated)
        only_strong = {
            each.channel for each in state.outputs if STRONG in each.accepts and MONOTONE not in each.accepts
        }
        monotone_suffices = self.index.monotone_suffices - only_strong
        rules = SearchRules(
            channels=channels,
            declared=declared,
            kept=propagated if Pruning.UPSTREAM_LIMITS in passes else declared,
            frontiers=frontiers if Pruning.UPSTREAM_LIMITS in passes else {},
            long_term=Pruning.LONG_TERM in passes,
            monotone_suffices=monotone_suffices,
        )
        if Pruning.OVERKILL not in passes:
            return rules
        return replace(rules, overkill=overkill_rule(blocks, channels, propagated, monotone_suffices))


def _goals(
    search: BlockSearch, state: SchedulingState, violated: Iterable[Bound]
) -> dict[str, Callable[[Entry], bool]]:
    """Return whether a block is the cheapest one that repairs the violated bound of an output, by output channel.

    The first optimized block that repairs it is, unless the long-term provision drops it for a dearer one that is ahead
    of it. There are no goals where several bounds of an output are violated, and blocks that repair some of them count.
    """
    channels = [bound.channel for bound in violated]
    if len(set(channels)) < len(channels):
        return {}
    goals: dict[str, Callable[[Entry], bool]] = {}
    for output in state.outputs:
        if output.channel in channels:
            last = [(state.times[path[0]].points or (0,))[-1] for path in search.workflow.paths[output.channel]]
            goals[output.channel] = _CheapestRepair(search.rules, output, tuple(last))
    return goals


@dataclass(slots=True)
class _CheapestRepair:
    """Test of blocks for the cheapest one that repairs the bound of an output.

    Attributes:
        rules: the rules of the search.
        output: the output.
        last: the newest point of the source of each path.
        missed: whether the cheapest one was seen, and may be dropped; then no other one is known to be the cheapest.
    """

    rules: SearchRules
    output: OutputState
    last: Newest
    missed: bool = False

    def __call__(self, entry: Entry) -> bool:
        if self.missed or entry.kind not in self.output.accepts:
            return False
        result = continuation(self.output.head, entry.start, entry.target)
        if result is None or not self.rules.declared.holds(entry.channel, result):
            return False
        read = (True,) * len(self.last) if entry.start is None else map(bool, entry.start)
        ahead = all(point == last or not each for point, last, each in zip(entry.newest, self.last, read, strict=True))
        self.missed = self.rules.long_term and not ahead
        return not self.missed


def _repairing_entries(search: BlockSearch, output: OutputState, violated: list[Bound], *, whole: bool) -> list[Entry]:
    """Return the optimized blocks that continue an output and repair its bounds, the cheapest first.

    Args:
        search: the search.
        output: the output.
        violated: its violated bounds.
        whole: whether all of them must be repaired, or at least one.
    """
    paths = search.workflow.paths[output.channel]
    places = [paths.index(bound.path) for bound in violated if isinstance(bound, StalenessBound)]
    declared = search.rules.declared
    found: list[Entry] = []
    for kind in output.accepts:
        for entry in search.optimized.of(output.channel, kind):
            result = continuation(output.head, entry.start, entry.target)
            if result is None:
                continue
            if whole:
                repairs = declared.holds(output.channel, result)
            else:
                changed = len(places) < len(violated) or any(result[place] != output.head[place] for place in places)
                repairs = changed and declared.breach(output.channel, result, output.head) is None
            if repairs:
                found.append(entry)
    return sorted(found, key=lambda entry: (entry.cost, entry.number))
