"""Retraction of a faulty logic version: all that it has touched is found and repaired (logic evolution, footnote 3)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kilonova.catalog import bindings, events, registry
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.planner_input import load_planner_input
from kilonova.errors import DeclarationError
from kilonova.model.event import EventKind
from kilonova.schedule.retraction import RepairStep, Retraction, plan_retraction
from kilonova.service.registration import Registration

if TYPE_CHECKING:
    from kilonova.service.workflow_plan import WorkflowPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class RetractionReport:
    """Report of what retracting a logic version repairs, at the next run.

    Attributes:
        retraction: what it has touched, and how that is repaired.
        plan: the plan by which an earlier definition replaces it; None if another version has replaced it already.
    """

    retraction: Retraction
    plan: WorkflowPlan | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable content."""
        return {
            "touched": [asdict(each) for each in self.retraction.touched],
            "steps": dict(self.retraction.steps),
            "plan": None if self.plan is None else self.plan.to_dict(),
        }


class Retractions:
    """Retraction of logic versions.

    Args:
        catalog: the metadata database.
        registration: registers the definition that replaces a retracted one.
    """

    def __init__(self, catalog: Catalog, registration: Registration) -> None:
        self._catalog = catalog
        self._registration = registration

    def retract(
        self, task: str, version: int, *, to: int | None = None, recompute: bool = False, dry_run: bool = False
    ) -> RetractionReport:
        """Retract a faulty logic version: find the points of all channels that reflect it, and let them be repaired.

        Older points that reflect it cannot be read by their numbers any more. If it is the present version, an earlier
        definition is registered again, as a new version. The next run repairs the newest points.

        Args:
            task: the task.
            version: the faulty logic version.
            to: the version whose definition replaces it, if it is the present one; None for the newest earlier one
                that is not retracted.
            recompute: recompute the output of the task, even if it can be, or was, migrated: its rows may not be those
                that its definition gives.
            dry_run: change nothing.

        Raises:
            NotFound: there is no such task or version.
            DeclarationError: the present version is to be retracted, and no earlier definition can replace it.
            KilonovaError: any error that `apply` raises.
        """
        with self._catalog.reading() as tx:
            registry.logic_version(tx, task, version)
            found = plan_retraction(task, version, load_planner_input(tx), recompute=recompute)
            present = registry.tasks(tx, [task])[task].logic == version
            replacement = _replacement(tx, task, version, to) if present else None
        again = found.tasks(RepairStep.RECOMPUTE)

        def record(tx: Transaction) -> None:
            registry.retract(tx, task, version)
            for each in again:
                registry.reset_cursors(tx, each)
            bindings.reset_triggers(tx, again)
            events.record(tx, EventKind.APPLIED, text=f"{task}: logic version {version} was retracted")

        plan = None
        if replacement is not None:
            plan = self._registration.replace_retracted(task, replacement, record, dry_run=dry_run)
        elif not dry_run:
            with self._catalog.writing() as tx:
                record(tx)
        return RetractionReport(retraction=found, plan=plan)


def _replacement(tx: Transaction, task: str, version: int, to: int | None) -> int:
    """Return the logic version whose definition replaces the present one of a task."""
    if to is not None:
        return to
    faulty = registry.retracted(tx).get(task, frozenset())
    earlier = [each.logic for each in registry.versions(tx, task) if each.task == task and each.logic < version]
    usable = [each for each in earlier if each not in faulty]
    if not usable:
        raise DeclarationError(
            f"no earlier logic version can replace the version {version}",
            task=task,
            hint="Correct its definition and apply it, then retract the faulty version",
        )
    return max(usable)
