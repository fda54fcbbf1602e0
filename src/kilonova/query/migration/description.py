"""Descriptions of migrations for users."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from kilonova.query.expression import Op, Scalar, column
from kilonova.query.migration.joint import Joint, marked
from kilonova.query.migration.pairs import Pair, kinds_of
from kilonova.query.migration.query_block import flatten
from kilonova.query.migration.row_difference import FALSE, added, removed
from kilonova.query.properties import Known
from kilonova.query.tree import Aggregate, Node, channels, names, scans


def describe_conditions(joint: Joint, conditions: tuple[Scalar, ...], shown: Mapping[str, str]) -> str:
    """Return conditions on rows of a joint relation as text.

    Args:
        joint: the joint relation.
        conditions: the conditions.
        shown: the names by which columns are shown that are not shown by those of their channels.
    """
    rows = [joint.tree, *(lookup.rows for lookup in joint.lookups)]
    every = {name: (scan.channel, source) for node in rows for scan in scans(node) for source, name in scan.columns}
    read = {name for each in conditions for name in each.columns if name in every and name not in shown}
    often = Counter(every[name][1] for name in read)
    plain = {name: source if often[source] < 2 else f"{channel}.{source}" for name, (channel, source) in every.items()}
    named = {name: column(source) for name, source in {**plain, **shown}.items()}
    texts = []
    for each in conditions:
        found = next(
            ((lookup, is_met) for lookup in joint.lookups if (is_met := marked(each, lookup)) is not None), None
        )
        if found is None:
            text = re.sub(r"`([\w.]+)`", r"\1", each.with_columns(named).sql)
            texts.append(f"({text})" if each.bare.op is Op.OR and len(conditions) > 1 else text)
        else:
            lookup, is_met = found
            by = sorted(lookup.condition.columns - set(names(lookup.rows)))
            columns = ", ".join(named[name].name or name if name in named else name for name in by)
            texts.append(f"{'a' if is_met else 'no'} row of {_described(lookup.rows)} matches {columns}")
    return " AND ".join(texts)


def _described(rows: Node) -> str:
    """Return a text for the rows of a lookup: what they are read from, and for which conditions."""
    block = flatten(rows.input if isinstance(rows, Aggregate) else rows)
    read = ", ".join(channels(rows))
    conditions = describe_conditions(Joint(tree=rows, old={}, new={}), block.conditions, {})
    return f"{read} with {conditions}" if conditions else read


def describe_pair(pair: Pair, known: Known) -> list[str]:
    """Return what a migration does with the rows of a pair."""
    texts = []
    for joint, _ in pair.branches:
        kinds = kinds_of(joint, known)
        read = ", ".join(name for name in channels(joint.tree) if name in known)
        for verb, conditions, common in (
            ("adds", added(joint, kinds), joint.now),
            ("subtracts", removed(joint, kinds), joint.was),
        ):
            if conditions is None:
                continue
            which = "" if FALSE in (*joint.was, *joint.now) else describe_conditions(joint, conditions or common, {})
            texts.append(f"{verb} the contribution of the rows of {read}{f' for which {which}' if which else ''}")
    return texts
