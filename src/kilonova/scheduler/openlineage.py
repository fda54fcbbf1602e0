"""Conversion of runs to OpenLineage events, with the official client.

Each task of a run is an OpenLineage run of its own, of a job that is named after the task; the run itself is their
parent, of a job `binding:NAME`, or `by-hand`. An ingest is a run of the job `ingest:CHANNEL`. Compactions change no
data and emit no events.

Events, including their ids, depend on the catalog alone: sending them again is idempotent for the receiver.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

from openlineage.client import OpenLineageClient, event_v2
from openlineage.client.facet_v2 import (
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    schema_dataset,
)
from openlineage.client.transport import get_default_factory
from openlineage.client.uuid import generate_static_uuid

from kilonova.errors import SettingsError
from kilonova.model.event import Event, EventKind
from kilonova.model.run import RunKind
from kilonova.model.schema import Schema
from kilonova.service.reports import ChannelAccess, RunLineage, Step

_STATES = {
    EventKind.LAUNCHED: event_v2.RunState.START,
    EventKind.SUCCEEDED: event_v2.RunState.COMPLETE,
    EventKind.FAILED: event_v2.RunState.FAIL,
    EventKind.CANCELLED: event_v2.RunState.ABORT,
    EventKind.ABANDONED: event_v2.RunState.ABORT,
}


def client(transport: Mapping[str, Any]) -> OpenLineageClient:
    """Return an OpenLineage client.

    Args:
        transport: the client's transport configuration, which says where events are sent.

    Raises:
        SettingsError: the client rejects the configuration.
    """
    event_v2.set_producer(f"pkg:pypi/kilonova@{version('kilonova')}")
    try:
        if "type" not in transport:  # the client would print events to the console
            raise KeyError("type")
        return OpenLineageClient(transport=get_default_factory().create(dict(transport)))
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        for text in _texts({name: value for name, value in transport.items() if name != "type"}):
            message = message.replace(text, "***")  # a key or a password may be among them
        raise SettingsError(
            f"the OpenLineage client rejected the setting lineage.transport: {message}",
            hint='Write, for example, {type = "file", log_file_path = "lineage.json", append = true}',
        ) from None


def _texts(value: Any) -> list[str]:
    """Return every text within a setting, the longest first."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return sorted((text for each in value for text in _texts(each)), key=len, reverse=True)
    return [value] if isinstance(value, str) and value else []


def events(lineage: RunLineage, event: Event, *, namespace: str, warehouse: str) -> list[event_v2.RunEvent]:
    """Convert an event of a run to OpenLineage events.

    Args:
        lineage: the run's lineage.
        event: the event.
        namespace: the namespace of jobs.
        warehouse: the URL of the warehouse, which is the namespace of datasets.
    """
    converted = partial(_event, lineage, event, namespace, warehouse)
    match lineage.run.kind:
        case RunKind.COMPACTION | RunKind.RECOVERY:
            return []
        case RunKind.INGEST:
            return [converted(step, f"ingest:{each.channel}") for step in lineage.steps for each in step.written]
        case RunKind.TASKS:
            name = "by-hand" if event.binding is None else f"binding:{event.binding}"
            parent = parent_run.ParentRunFacet(
                run=parent_run.Run(runId=_id(lineage, name)), job=parent_run.Job(namespace=namespace, name=name)
            )
            whole = converted(Step(task=None), name)
            parts = [converted(step, str(step.task), parent) for step in lineage.steps]
            return [whole, *parts] if event.kind is EventKind.LAUNCHED else [*parts, whole]


def _id(lineage: RunLineage, job: str) -> str:
    return str(generate_static_uuid(lineage.run.started, f"{lineage.catalog}/{lineage.run.number}/{job}".encode()))


def _event(
    lineage: RunLineage,
    event: Event,
    namespace: str,
    warehouse: str,
    step: Step,
    job: str,
    parent: parent_run.ParentRunFacet | None = None,
) -> event_v2.RunEvent:
    facets: dict[str, Any] = {}
    if parent is not None:
        facets["parent"] = parent
    if event.kind in (EventKind.FAILED, EventKind.CANCELLED, EventKind.ABANDONED):
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=event.text, programmingLanguage="PYTHON"
        )
    kind = job_type_job.JobTypeJobFacet(
        processingType="BATCH", integration="KILONOVA", jobType="RUN" if step.task is None else "TASK"
    )
    return event_v2.RunEvent(
        eventTime=event.time.isoformat(),
        eventType=_STATES[event.kind],
        run=event_v2.Run(runId=_id(lineage, job), facets=facets),
        job=event_v2.Job(namespace=namespace, name=job, facets={"jobType": kind}),
        inputs=[
            event_v2.InputDataset(namespace=warehouse, name=each.channel, facets=_facets(each, lineage.schemas))
            for each in step.read
        ],
        outputs=[
            event_v2.OutputDataset(
                namespace=warehouse,
                name=each.channel,
                facets=_facets(each, lineage.schemas),
                outputFacets=_statistics(each),
            )
            for each in step.written
        ],
    )


def _facets(item: ChannelAccess, schemas: Mapping[str, Schema]) -> dict[str, Any]:
    facets: dict[str, Any] = {}
    if item.channel in schemas:
        columns = schemas[item.channel].columns
        fields = [schema_dataset.SchemaDatasetFacetFields(name=each.name, type=each.type) for each in columns]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
    if item.point is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(item.point))
    return facets


def _statistics(written: ChannelAccess) -> dict[str, Any]:
    if written.rows is None:
        return {}
    facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=written.rows, size=written.bytes
    )
    return {"outputStatistics": facet}
