"""Ingest: rows from outside become a block of a source channel (Nova, section 4: insertion of new blocks)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Never

from pyspark.errors import PySparkException

from kilonova.catalog import channel_registry, channel_store, ingest_keys, task_graph
from kilonova.catalog.database import Transaction
from kilonova.catalog.schema_alerts import alert_readers
from kilonova.engine.interfaces import Frame, WarehouseInterface
from kilonova.engine.invocation import validate_output
from kilonova.engine.output import Output, write_output
from kilonova.engine.run_events import LinesMalformed, RunStarted
from kilonova.engine.run_protocol import ActiveRun, Participant, RunEnvironment, RunPlan, RunResults, execute_run
from kilonova.errors import Conflict, DeclarationError, EncodingError, InputError, KilonovaError, SchemaMismatch
from kilonova.model.block import Base, Block, BlockName, Delta, External
from kilonova.model.channel import Channel, ChannelState
from kilonova.model.column_mapping import input_columns, map_columns
from kilonova.model.column_rules import STRICT, OnNewColumn
from kilonova.model.encoding import DELETED, key_of
from kilonova.model.idempotency import IdempotencyKey
from kilonova.model.ingest_columns import check_ingest_columns, ingest_columns
from kilonova.model.malformed_lines import MalformedLines
from kilonova.model.run import RunKind, RunOutput
from kilonova.model.schema import Column, Schema
from kilonova.model.task import Production
from kilonova.model.version import Version
from kilonova.model.write_plan import WritePlan
from kilonova.warehouse.blocks import POSITION
from kilonova.warehouse.spark_errors import summarize_error


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSource:
    """Rows from outside.

    Attributes:
        rows: function that returns them, given their channel: a frame, or files to be registered in place as a block.
        production: whether they are a delta in the channel's encoding or the whole relation.
        bytes: their approximate size; None if unknown.
        description: a description of their source, for display.
        explain: given an error of the ingest, returns it with the lines that caused it, if the rows are of files.
        malformed: returns the lines that did not fit, after the rows were written.
        hidden: the path of a temporary file that has them, in whose place errors have the description.
        in_file_order: whether each row has the position of its file: of several rows of a key, the last file's count.
    """

    rows: Callable[[Channel], Any]
    production: Production
    bytes: int | None
    description: str
    explain: Callable[[Channel, KilonovaError], KilonovaError] = lambda _, error: error
    malformed: Callable[[Channel], MalformedLines | None] = lambda _: None
    hidden: str | None = None
    in_file_order: bool = False


@dataclass(frozen=True, slots=True)
class IngestTarget:
    """A source channel in the state in which a run ingests into it.

    Attributes:
        state: the channel's state.
        strong: whether its changes are read.
        pins: the numbers of the blocks that are read.
    """

    state: ChannelState
    strong: bool
    pins: tuple[int, ...]


def ingest_target(tx: Transaction, channel: str, production: Production) -> IngestTarget:
    """Return the ingest target for the channel of that name.

    Raises:
        NotFound: there is no such channel.
        DeclarationError: a task writes the channel, which is not declared to have several writers, or the whole
            relation is to be written to a channel that is.
    """
    state = channel_store.channel_state(tx, channel)
    _refuse_derived(tx, channel)
    if state.channel.several_writers and production is Production.BASE:
        raise DeclarationError(
            "the relation cannot be replaced, because the channel has several writers",
            channel=channel,
            hint="Ingest a delta",
        )
    pins = tuple(block.number for block in state.snapshot(state.latest_readable).blocks)
    return IngestTarget(state, channel in task_graph.followed_channels(tx, [channel]), pins)


def _refuse_derived(tx: Transaction, channel: str) -> None:
    """Check that no task is the only writer of a channel, whose readers may have passed the points of others."""
    writers = task_graph.writers(tx, [channel])[channel]
    if writers and not channel_store.channel(tx, channel).several_writers:
        raise DeclarationError(
            f"only the task {writers[0]} may write the channel",
            channel=channel,
            hint="Ingest into a source channel, or declare this one with several_writers=True",
        )


def write_ingested(
    warehouse: WarehouseInterface[Any], target: IngestTarget, source: IngestSource, point: int, name: BlockName
) -> Block | None:
    """Write rows from outside as a block; see `ingest`.

    Args:
        warehouse: the blocks.
        target: the channel.
        source: the rows.
        point: the reserved point.
        name: the block's name.

    Returns:
        The block, or None if nothing changes.
    """
    channel = target.state.channel
    try:
        frame = source.rows(channel)
        if isinstance(frame, External):
            assert channel.schema is not None  # else the files would have been rejected
            schema, write = channel.schema, _register_external
        else:
            position = (POSITION,) if source.in_file_order else ()
            if channel.rules != STRICT or channel.added:
                frame, channel = _by_rules(warehouse, frame, channel, source.production, point, position)
            frame = warehouse.with_ingest_columns(frame, ingest_columns(channel.schema or Schema(())))
            given = warehouse.schema_of(frame).without(*position)
            schema = validate_output(given, channel, source.production, None)
            sequence = () if channel.sequence_by is None else (channel.sequence_by,)
            if sequence or position:
                frame = warehouse.newest(frame, channel.key, (*sequence, *position), source.bytes)
            write = write_output
        output = Output(
            state=target.state,
            point=point,
            name=name,
            strong=target.strong,
            frame=frame,
            schema=schema,
            production=source.production,
            replaces=source.production is Production.BASE,
            expected=source.bytes,
        )
        if channel.sequence_by is not None and source.production is Production.DELTA:
            output = replace(output, frame=_without_older(warehouse, output, channel.sequence_by))
        return write(warehouse, output)
    except KilonovaError as error:
        _fail(source.explain(channel, error), error.__cause__, channel, source)
    except PySparkException as error:
        problem = f"the rows cannot be read: {summarize_error(error)}"
        _fail(InputError(problem, hint="Correct them; nothing was changed"), error, channel, source)


def _by_rules(
    warehouse: WarehouseInterface[Frame],
    frame: Frame,
    channel: Channel,
    production: Production,
    point: int,
    others: tuple[str, ...],
) -> tuple[Frame, Channel]:
    """Return rows with the columns of their channel by its rules for columns, and the channel with those it gets.

    Args:
        warehouse: the blocks.
        frame: the rows; those of files have been read by the rules, which do not change them again.
        channel: the channel.
        production: whether the rows are a delta or the whole relation.
        point: the point that they will fill.
        others: columns of the frame that are not part of the rows.

    Raises:
        SchemaMismatch: the columns do not fit by the rules either.
    """
    given = warehouse.schema_of(frame).without(*others)
    mapping = map_columns(given.names, input_columns(channel, production), "the input")
    frame = warehouse.mapped(frame, mapping, channel.schema or Schema(()), others)
    if mapping.added:
        new = (Column(name, given.type_of(name), point - 1) for name in mapping.added)
        try:
            relation = Schema((*(channel.schema or Schema(())).columns, *new))
            check_ingest_columns(relation)
            channel = replace(channel, schema=relation)
        except DeclarationError as error:
            raise SchemaMismatch(error.problem, column=error.column, hint=error.hint) from None
    return frame, channel


def new_columns(target: IngestTarget, block: Block | None) -> tuple[Column, ...]:
    """Return the columns that a block adds to its channel, by its rules for columns."""
    channel = target.state.channel
    if block is None or channel.schema is None or channel.rules.on_new_column is not OnNewColumn.ADD:
        return ()
    return tuple(column for column in block.schema.columns if column.name not in channel.schema.names)


def publication_participants(target: IngestTarget, block: Block | None) -> tuple[Participant, ...]:
    """Return what is checked when a block is published, and records the columns that it adds to its channel, or lacks.

    The run fails with a conflict if the columns of the channel have changed in the meantime, and with an error of the
    declaration if a task writes the channel by now.
    """
    if block is None:
        return ()
    new, channel = new_columns(target, block), target.state.channel
    add = partial(channel_registry.add_columns, channel=channel, new=new)
    alert = partial(alert_readers, channel=channel.name)
    found = [Participant(on_commit=lambda tx, _: _refuse_derived(tx, channel.name))]
    found += [Participant(on_commit=add)] if new else []
    return (*found, Participant(on_commit=alert)) if target.state.has_other_columns(block) else tuple(found)


def describe_effects(target: IngestTarget, block: Block | None, malformed: MalformedLines | None) -> list[str]:
    """Return what an ingest has done besides inserting rows, as text."""
    columns = [column.name for column in new_columns(target, block)]
    found = [f"new column{'s' if len(columns) > 1 else ''} {', '.join(columns)}"] if columns else []
    return found if malformed is None else [*found, str(malformed)]


def _fail(error: KilonovaError, cause: BaseException | None, channel: Channel, source: IngestSource) -> Never:
    """Raise an error of an ingest into a channel; it does not name a temporary file."""
    if source.hidden is not None:
        error.without_path(source.hidden, source.description)
        cause = None  # which names it, too
    raise error.with_context(channel=channel.name) from cause


def _without_older(warehouse: WarehouseInterface[Any], output: Output[Any], sequence_by: str) -> Any:
    """Return the rows of a delta except those of keys that have a row with a higher value of a column.

    Raises:
        Conflict: the rows before the delta are not known yet.
        DeclarationError: the delta is files to be registered in place.
        EncodingError: the delta may delete rows: a later delta could not tell that its row is older.
    """
    state = output.state
    if isinstance(output.frame, External):
        raise DeclarationError(
            "files cannot be registered in place as a delta, because the channel has sequence_by",
            hint="Ingest them without in_place, which leaves out rows that are older than those of the channel",
        )
    if DELETED[0] in warehouse.schema_of(output.frame).names:
        raise EncodingError(
            "rows cannot be deleted, because the channel has sequence_by",
            column=DELETED[0],
            hint="Mark deleted rows in a column of their own, and leave them out in a view",
        )
    if not output.settled:
        raise Conflict(
            "another run is writing the channel, and rows must be compared with its rows",
            hint="Try again when it has ended",
        )
    old = state.snapshot(state.latest_readable)
    key = key_of(state.channel.encoding)
    return warehouse.without_older(output.frame, key, sequence_by, old, output.schema, output.expected)


def _register_external(warehouse: WarehouseInterface[Any], output: Output[Any]) -> Block | None:
    """Register external files as a block of a channel; see `write_ingested`."""
    state, point, whole = output.state, output.point, output.replaces
    plan = WritePlan(
        name=output.name,
        kind=Base(point) if whole else Delta(point - 1, point),
        schema=output.schema,
        encoding=state.channel.encoding,
        old=state.snapshot(state.latest_readable) if output.settled and not whole else None,
        checks=state.channel.checks,
    )
    return warehouse.register(output.frame, plan)


def ingest_results(channel: str, point: int, block: Block | None, reason: str, seconds: float) -> RunOutput:
    """Return the output of an ingest run at a point of a source channel."""
    return RunOutput(
        channel=channel,
        point=point,
        block=block,
        version=Version.source(channel, point),
        task=None,
        reason=reason,
        seconds=seconds,
    )


def report_malformed(run: ActiveRun[Any], channel: str, lines: MalformedLines | None) -> MalformedLines | None:
    """Notify of lines of ingested files that did not fit, if there are some, and return them."""
    if lines is not None:
        run.notify(LinesMalformed(run=run.run, step=channel, lines=lines))
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRunResults(RunResults):
    """Results of a run that ingests rows, with the lines that did not fit."""

    malformed: MalformedLines | None


@dataclass(frozen=True, slots=True)
class IngestAcknowledgement:
    """Acknowledgement of a completed ingest.

    Attributes:
        run: the run that executed it.
        repeated: whether that was an earlier run with the same idempotency key.
        malformed: the lines of its files that did not fit.
    """

    run: int
    repeated: bool
    malformed: MalformedLines | None = None


def ingest(
    environment: RunEnvironment,
    warehouse: WarehouseInterface[Any],
    channel: str,
    source: IngestSource,
    key: IdempotencyKey | None = None,
) -> IngestAcknowledgement:
    """Insert a block into a source channel.

    Args:
        environment: the environment of the run.
        warehouse: the blocks.
        channel: the channel.
        source: the rows.
        key: an idempotency key: if a run has completed the ingest under it, nothing is done.

    Raises:
        NotFound: there is no such channel.
        DeclarationError: a task writes the channel.
        SchemaMismatch: the rows do not fit it.
        KeyViolation: keys are null or occur twice.
        InputError: a file cannot be read.
        KeyReused: the idempotency key was used for another ingest.
        Conflict: a run is executing the ingest under that key.
    """
    earlier: list[int] = []

    def prepare(tx: Transaction) -> RunPlan[IngestTarget] | None:
        if key is not None and (run := ingest_keys.finished(tx, channel, key)) is not None:
            earlier.append(run)
            return None
        found = ingest_target(tx, channel, source.production)
        claims = () if key is None else (Participant(on_start=partial(ingest_keys.claim, channel=channel, key=key)),)
        return RunPlan(
            kind=RunKind.INGEST,
            writes=(channel,),
            pins=found.pins,
            plan=found,
            participants=claims,
        )

    def work(run: ActiveRun[IngestTarget]) -> IngestRunResults:
        point = run.points[channel]
        run.notify(RunStarted(run=run.run, steps=(channel,)))
        with run.step(channel, f"from {source.description}") as step:
            block = write_ingested(warehouse, run.plan, source, point, run.name_block(channel))
            step.count(block)
            malformed = report_malformed(run, channel, source.malformed(run.plan.state.channel))
        reason = "; ".join((f"ingested from {source.description}", *describe_effects(run.plan, block, malformed)))
        return IngestRunResults(
            outputs=(ingest_results(channel, point, block, reason, step.seconds),),
            participants=publication_participants(run.plan, block),
            malformed=malformed,
        )

    done = execute_run(environment, prepare, work)
    if done is None:
        return IngestAcknowledgement(earlier[-1], True)
    return IngestAcknowledgement(done[0], False, done[1].malformed)
