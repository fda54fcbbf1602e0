"""Kept relations as tasks: each made anew from whole channels, or brought up to date by its change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from kilonova.model.channel import Channel
from kilonova.model.encoding import Append, Changes, Custom, delta_schema
from kilonova.model.schema import Schema, quoted
from kilonova.model.task import Mode, Port, Production, Query, Sql, Task, Variant
from kilonova.query.maintaining import Situation, maintained, way
from kilonova.query.ordering import ordered, unhinted
from kilonova.query.parsing import parsed
from kilonova.query.properties import Facts, Known, single
from kilonova.query.pruning import narrowed
from kilonova.query.rendering import rendered
from kilonova.query.storing import Stored, restored
from kilonova.query.thinning import thinned
from kilonova.query.tree import WEIGHT, At, Node, Scan, names, scans
from kilonova.query.weighing import weighing

FULL, INCREMENTAL = "full", "incremental"
"""The names of a kept relation's variants."""


def facts(channel: Channel) -> Facts:
    """What queries may rely on of a channel."""
    types = {} if channel.schema is None else {column.name: column.type for column in channel.schema.columns}
    key = () if isinstance(channel.encoding, Custom) else channel.key
    return Facts(types=types, key=key, grows=isinstance(channel.encoding, Append))


def task_of(item: Stored, *, always: bool = False) -> Task:
    """The task that keeps a relation.

    Args:
        item: the relation.
        always: whether its change is preferred even where making it anew is cheaper; that variant comes first then.
    """
    text = rendered(item.tree, lambda scan: quoted(scan.channel))
    whole = Variant(
        name=FULL,
        ports=tuple(Port(name, name, Mode.ALL) for name in item.reads),
        productions=(Production.BASE,),
        logic=Sql(text=_with_ports(item.tree, lambda scan: scan.channel)),
        fingerprint=text,
    )
    if item.whole is not None:
        return Task(name=item.channel, writes=(item.channel,), variants=(whole,), note=way(item))
    change = Mode.INSERTS if isinstance(item.encoding, Append) else Mode.CHANGES
    ports = [
        Port(_port(name, at), name, mode)
        for name in item.reads
        for at, mode in ((At.CHANGE, change), (At.OLD, Mode.OLD), (At.NEW, Mode.ALL))
    ]
    incremental = Variant(
        name=INCREMENTAL,
        ports=(*ports, Port(_port(item.channel, At.OLD), item.channel, Mode.ALL)),
        productions=(Production.DELTA,),
        logic=Query(text=text),
        fingerprint=text,
    )
    variants = (incremental, whole) if always else (whole, incremental)
    return Task(name=item.channel, writes=(item.channel,), variants=variants, note=way(item))


@dataclass(frozen=True, slots=True)
class Delta:
    """The query that brings a relation up to date in one run.

    Attributes:
        sql: the query; it names in braces what it reads.
        reads: by those names, the ports that are read.
    """

    sql: str
    reads: Mapping[str, Read]


@dataclass(frozen=True, slots=True)
class Read:
    """How a query reads a port.

    Attributes:
        port: the port.
        weighed: whether it reads rows with weights that add up to the port's.
    """

    port: str
    weighed: bool = False


def delta_of(text: str, channel: Channel, complete: Schema, known: Known, found: Situation) -> Delta | None:
    """What brings a kept relation up to date.

    Args:
        text: the relation's query.
        channel: the channel that holds it.
        complete: its columns, and what is stored beside them.
        known: the channels that it reads.
        found: how the run finds them.

    Returns:
        The query; None if nothing changes.
    """
    item = restored(channel.name, text, channel.encoding, known, facts(channel))
    item = replace(item, tree=narrowed(ordered(item.tree, found.moved, found.sizes, known)))
    tree = maintained(item, known, found)
    if tree is None:
        return None
    tree = thinned(weighing(tree, found.layered), known)
    sql = _with_ports(tree if found.few else unhinted(tree), _name, alone=found.alone)
    wanted = delta_schema(Changes() if WEIGHT in names(tree) else channel.encoding, complete)
    reads = {_name(scan): Read(_port(scan.channel, scan.at), scan.weighed) for scan in scans(tree)}
    return Delta(_cast(sql, wanted), reads)


def has_one_row(text: str, known: Known) -> bool:
    """Return whether a query gives one row at most, as far as can be told; for the parameters see `delta_of`."""
    return single(parsed(text, known), known)


def way_of(text: str, channel: Channel, known: Known) -> str:
    """How a kept relation is brought up to date, in words; for the parameters see `delta_of`."""
    return way(restored(channel.name, text, channel.encoding, known, facts(channel)))


def _cast(sql: str, wanted: Schema) -> str:
    """A query with columns of exactly these types."""
    columns = ", ".join(f"CAST({quoted(c.name)} AS {c.type}) AS {quoted(c.name)}" for c in wanted.columns)
    return f"SELECT {columns} FROM ({sql})"


def _port(channel: str, at: At) -> str:
    return f"{channel}__{at.value}"


def _name(scan: Scan) -> str:
    return f"{_port(scan.channel, scan.at)}{'__weighed' if scan.weighed else ''}"


_LEFT, _RIGHT = "\x02", "\x03"


def _with_ports(tree: Node, port: Callable[[Scan], str], *, alone: bool = False) -> str:
    """A tree as SQL with ports in braces, its own braces doubled."""
    sql = rendered(tree, lambda scan: f"{_LEFT}{port(scan)}{_RIGHT}", alone=alone)
    return sql.replace("{", "{{").replace("}", "}}").replace(_LEFT, "{").replace(_RIGHT, "}")


def known_of(channels: Mapping[str, Channel], single: Collection[str] = ()) -> Known:
    """What queries may rely on of channels.

    Args:
        channels: the channels by name.
        single: those that have one row at most, before a change and after it, as far as can be told.
    """
    return {name: replace(facts(channel), single=name in single) for name, channel in channels.items()}
