"""Replacement of an input of a task by another channel with the same columns (logic evolution, 3.2).

The task computes from the other channel what it has computed from the first one: of a view, the queries read the other
channel, as if they had been written so; a function is called with its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kilonova.model.channel import Channel
from kilonova.model.logic import Logic, Sql
from kilonova.model.schema import quoted
from kilonova.model.task import Port, Task, Variant
from kilonova.model.version import START, describe_logic
from kilonova.query.canonical_form import canonical_text
from kilonova.query.expression import column
from kilonova.query.materialized_relation import MaterializedRelation
from kilonova.query.properties import Known
from kilonova.query.rendering import render
from kilonova.query.tree import Filter, Node, Projection, Scan, inputs, with_inputs
from kilonova.query.tree_json import tree_to_json
from kilonova.query.view_tasks import FULL, ViewChange, change_of, facts, task_of


def with_input_replaced(task: Task, old: str, new: str, known: Known) -> Task:
    """Return a task that reads one channel where it read another.

    Args:
        task: the task.
        old: the channel that it reads.
        new: the channel that it is to read.
        known: the channels that it reads then.
    """
    change = change_of(task)
    tree = None if change is None else _replaced(change.tree, old, new)
    text = None if tree is None else canonical_text(tree, known)
    variants = tuple(_variant(each, task.writes[0], old, new, tree, text) for each in task.variants)
    return replace(task, variants=variants, migrations=())


def with_fingerprints_of(task: Task, declared: Task) -> Task:
    """Return a task whose variants have the fingerprints of declared ones where their text is the same."""
    same = {(each.name, each.logic.text): each.fingerprint for each in declared.variants}
    variants = (replace(v, fingerprint=same.get((v.name, v.logic.text), v.fingerprint)) for v in task.variants)
    return replace(task, variants=tuple(variants))


def only_filters(task: Task, columns: Sequence[str]) -> bool:
    """Return whether a task is a view that passes on some of the rows of its input, with all of its columns."""

    def sources(node: Node) -> dict[str, str] | None:
        """Return the column of the input that each column of filtered rows is; None if it may be something else."""
        match node:
            case Scan():
                return {name: source for source, name in node.columns}
            case Filter():
                return sources(node.input)
            case Projection():
                below = {column(name): source for name, source in (sources(node.input) or {}).items()}
                known = all(item.value in below for item in node.items)
                return {item.name: below[item.value] for item in node.items} if known else None
            case _:
                return None

    change = change_of(task)
    return change is not None and sources(change.tree) == {name: name for name in columns}


def no_op(name: str, channel: Channel, output: Channel, view: str | None) -> Task:
    """Return a task that passes the rows of a channel on: the logic version `s` of an inserted task.

    Args:
        name: the name of the task.
        channel: the channel, with its columns.
        output: the channel that it writes.
        view: the view that the task maintains, if it does.
    """
    assert channel.schema is not None
    columns = tuple((each, each) for each in channel.schema.user_columns.names)
    own = facts(channel)
    rows = MaterializedRelation(
        channel=output.name, tree=Scan(channel.name, columns), encoding=output.encoding, facts=own
    )
    task = task_of(rows, name, {channel.name: own})
    return beginning(replace(task, name=name, view=view))


def beginning(task: Task) -> Task:
    """Return a task at the logic version `s`, to which no declared definition is equal."""
    variants = tuple(replace(each, fingerprint=describe_logic(START)) for each in task.variants)
    return replace(task, variants=variants)


def _variant(variant: Variant, output: str, old: str, new: str, tree: Node | None, text: str | None) -> Variant:
    """Return a variant with another input; ports of queries that are called like the channel get the new name."""
    logic: Logic = variant.logic
    names = {port.name: port.name for port in variant.ports}
    fingerprint = variant.fingerprint
    if isinstance(logic, ViewChange) and tree is not None and text is not None:
        names |= {name: name.replace(old, new, 1) for name in names if name.rpartition("__")[0] == old}
        stored = tree_to_json(tree)
        logic, fingerprint = replace(logic, text=render(tree, lambda scan: quoted(scan.channel)), stored=stored), text
    elif isinstance(logic, Sql) and old in names:
        names[old] = new
        logic = replace(logic, text=logic.text.replace(f"{{{old}}}", f"{{{new}}}"))
        fingerprint = text if variant.name == FULL and text is not None else logic.text
    ports = [Port(names[port.name], new, port.mode) if port.channel == old else port for port in variant.ports]
    if tree is not None:  # in the order of `view_tasks.task_of`
        ports.sort(key=lambda port: (port.channel == output, port.channel))
    return replace(variant, ports=tuple(ports), logic=logic, fingerprint=fingerprint)


def _replaced(tree: Node, old: str, new: str) -> Node:
    if isinstance(tree, Scan):
        return replace(tree, channel=new) if tree.channel == old else tree
    return with_inputs(tree, tuple(_replaced(each, old, new) for each in inputs(tree)))
