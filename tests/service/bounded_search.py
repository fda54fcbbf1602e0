"""A workflow with bounds, the asynchronous join of pages and click scores, on a warehouse in memory.

A page gets the score of its site as of when it was joined; the scores of earlier pages are brought up to date by the
variant that joins everything again (asynchronous scheduling, section 1.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import kilonova as kn
from kilonova.catalog import channel_store, firings, scheduling, servers
from kilonova.catalog.bound_observation import implicit_bindings, observe_bounds, without_repeated
from kilonova.catalog.bound_status import bound_statuses
from kilonova.catalog.firings import Claim
from kilonova.errors import BoundViolated, KilonovaError
from kilonova.model.bound_phase import BoundPhase
from kilonova.model.firing import Firing
from kilonova.model.schema import Schema
from kilonova.schedule.bound_planning.bound_decision import BoundDecision, decide_bound_runs
from kilonova.schedule.bound_planning.bound_run import BoundRun
from kilonova.schedule.scheduler import TriggerScheduler
from tests.databases import Clock
from tests.generator.memory import GeneratedProject
from tests.generator.rows import Rows

PAGES = Schema.of(("page", "bigint"), ("site", "bigint"))
CLICKS = Schema.of(("site", "bigint"), ("person", "bigint"))
SCORES = Schema.of(("site", "bigint"), ("score", "bigint"))
SCORED = Schema.of(("page", "bigint"), ("site", "bigint"), ("score", "bigint"))


def scored(pages: Rows, scores: Rows) -> Rows:
    by_site = {each["site"]: each["score"] for each in scores.records}
    return Rows.of(SCORED, ({**page, "score": by_site.get(page["site"], 0)} for page in pages.records))


def workflow(staleness: str = "0 seconds", scores: str = "1 day", inconsistency: str = "1 week") -> kn.Workflow:
    search = kn.Workflow("search")
    search.channel("pages", PAGES.ddl)
    search.channel("clicks", CLICKS.ddl)
    search.channel("scores", SCORES.ddl, key="site")
    search.channel("scored_pages", SCORED.ddl)

    @search.task(writes=("scores",))
    def count_people(clicks: kn.All) -> kn.Base:
        people: Any = {(each["site"], each["person"]) for each in clicks.records}  # type: ignore[attr-defined]
        counts = Counter(site for site, _ in people)
        return Rows.of(SCORES, ({"site": site, "score": count} for site, count in counts.items()))  # type: ignore[return-value]

    @search.task(writes=("scored_pages",))
    def join_new(pages: kn.New, scores: kn.All) -> kn.Delta:
        return scored(pages, scores)  # type: ignore

    @join_new.variant
    def join_all(pages: kn.All, scores: kn.All) -> kn.Base:
        return scored(pages, scores)  # type: ignore

    search.bound_staleness("scored_pages", "pages", staleness)
    search.bound_staleness("scores", "clicks", scores)
    search.bound_inconsistency("scored_pages", inconsistency)
    return search


class World:
    """A project and its clock, and what a server does."""

    def __init__(self, directory: Path, declared: kn.Workflow) -> None:
        self.clock = Clock()
        self.project = GeneratedProject(directory, self.clock, directory / "template.db")
        self.project.warehouse.row_size = 50_000_000
        self.project.apply(declared)
        with self.project.catalog.writing() as tx:
            servers.register(tx, "server", "tests", timedelta(days=10_000))
        self.started: list[BoundRun] = []
        self.decision = BoundDecision()
        self.lost = 0

    def arrive(self, channel: str, schema: Schema, rows: Sequence[tuple[int, ...]]) -> None:
        self.project.ingest(channel, Rows(schema, tuple(rows)))  # type: ignore[arg-type]

    def serve(self, rounds: int = 20) -> None:
        """Start what bounds and triggers want, until there is nothing more."""
        for _ in range(rounds):
            if not self.start():
                return
        raise AssertionError("there is always more to do")

    def start(self) -> bool:
        """Start what bounds and triggers want now; return whether there was anything."""
        catalog = self.project.catalog
        with catalog.reading() as tx:
            observed = observe_bounds(tx)
            assert observed is not None
            self.decision = decide_bound_runs(observed)
            runs = without_repeated(tx, self.decision.runs)
            bounded = implicit_bindings(tx, self.decision.managed)
        with catalog.writing() as tx:
            numbers = scheduling.trigger_interests(tx).every
            seen = scheduling.observe(tx, numbers, free_workers=4, bound_runs=runs, bounded=bounded)
            batches = scheduling.store(tx, TriggerScheduler().decide(seen), "server")
        self.started += runs
        for claim in (claim for batch in batches for claim in batch.claims):
            self.clock.forward(1)
            if self.lost:
                self.lose(claim)
                continue
            try:
                self.project.runner.run_claim(claim)
            except BoundViolated:
                pass  # a task that cannot be recomputed may be unable to keep it
            except KilonovaError as error:
                raise AssertionError(f"{claim}: {error}") from error
        return bool(batches)

    def lose(self, claim: Claim) -> None:
        """Let the worker or the server of a claimed run end before it begins."""
        self.lost -= 1
        with self.project.catalog.writing() as tx:
            firings.requeue(tx, claim, counted=self.lost % 2 == 0)

    def advance(self, seconds: float) -> None:
        """Let time pass, and serve whenever a run is due."""
        end = self.clock.now + timedelta(seconds=seconds)
        while (due := self.decision.next_check) is not None and due < end:
            self.clock.now = max(self.clock.now, due)
            self.serve()
        self.clock.now = max(self.clock.now, end)

    def violated(self) -> list[str]:
        with self.project.catalog.reading() as tx:
            return [str(each) for each in bound_statuses(tx) if each.phase is BoundPhase.VIOLATED]

    def rows(self, channel: str) -> Counter[tuple[Any, ...]]:
        with self.project.catalog.reading() as tx:
            state = channel_store.channel_state(tx, channel)
        (found,) = self.project.look_up([state.snapshot(state.latest_kept)])
        assert isinstance(found, Rows), found
        return Counter(found.rows)

    def fired(self, binding: str) -> Firing:
        """Return the last firing of a binding."""
        with self.project.catalog.reading() as tx:
            return firings.last(tx, [binding])[binding]

    def last(self, binding: str) -> BoundRun:
        return next(run for run in reversed(self.started) if run.binding == binding)
