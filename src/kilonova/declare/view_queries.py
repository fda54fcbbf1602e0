"""Queries of common views, each given by one call: the widgets of asynchronous scheduling, section 3.

A view of such a query has the variants of its widget: it recomputes its rows from bases, processes the changes of all
inputs together, or the change of one input while the others are held as they were read (one-sided, or asynchronous).
Which of them runs follows from costs and from the bounds on the view.
"""

from __future__ import annotations

from typing import Literal, get_args

from kilonova.declare.workflowette import Names
from kilonova.errors import DeclarationError, closest_name

JoinType = Literal["inner", "left", "right", "full"]
"""Rows without a partner that a join keeps: none, or those of one side or of both."""


def join(left: str, right: str, *, on: Names, how: JoinType = "inner") -> str:
    """Return the query of a join of two channels: the columns that they share once, then the others of each.

    Args:
        left: a channel.
        right: another one.
        on: the columns whose values have to be equal; both channels have them.
        how: which rows without a partner are kept, with nulls in the columns of the other channel.

    Raises:
        DeclarationError: no columns are given, or there is no such type of join.

    >>> join("pages", "scores", on="site")
    'SELECT * FROM `pages` INNER JOIN `scores` USING (`site`)'
    """
    if how not in (types := get_args(JoinType)):
        raise DeclarationError(f"there is no join of type {how!r}", hint=closest_name(str(how), list(types)))
    if not (columns := _listed(on)):
        raise DeclarationError(f"the join of {left} and {right} has no columns", hint="Give the columns that are equal")
    return f"SELECT * FROM {_quoted(left)} {how.upper()} JOIN {_quoted(right)} USING ({columns})"


def union_all(*channels: str, columns: Names = ()) -> str:
    """Return the query of the rows of several channels, where equal rows count as often as they occur (a bag union).

    Args:
        channels: the channels, at least two.
        columns: the columns, which all of them have; by default all of them, by place.

    Raises:
        DeclarationError: there are fewer than two channels.

    >>> union_all("here", "there", columns=["id", "day"])
    'SELECT `id`, `day` FROM `here` UNION ALL SELECT `id`, `day` FROM `there`'
    """
    if len(channels) < 2:
        raise DeclarationError("a union needs two channels or more", hint="Name the others, or read the one directly")
    return " UNION ALL ".join(f"SELECT {_listed(columns) or '*'} FROM {_quoted(name)}" for name in channels)


def distinct(channel: str, columns: Names = ()) -> str:
    """Return the query of the different rows of a channel.

    Args:
        channel: the channel.
        columns: the columns; by default all of them.

    >>> distinct("clicks", ["site", "visitor"])
    'SELECT DISTINCT `site`, `visitor` FROM `clicks`'
    """
    return f"SELECT DISTINCT {_listed(columns) or '*'} FROM {_quoted(channel)}"


def aggregate(channel: str, *, by: Names = (), **aggregates: str) -> str:
    """Return the query of aggregates of groups of a channel's rows.

    Args:
        channel: the channel.
        by: the columns that make the groups; without any, all rows are one group.
        aggregates: the aggregates in Spark SQL, such as `count(*)` or `avg(price)`, by the names of their columns.

    Raises:
        DeclarationError: there is no aggregate.

    >>> aggregate("clicks", by="site", visits="count(*)")
    'SELECT `site`, count(*) AS `visits` FROM `clicks` GROUP BY `site`'
    """
    if not aggregates:
        raise DeclarationError(
            f"the groups of {channel} have no aggregates", hint="Give one, such as n='count(*)', or use distinct"
        )
    groups = _listed(by)
    found = ", ".join(f"{text} AS {_quoted(name)}" for name, text in aggregates.items())
    grouped = f" GROUP BY {groups}" if groups else ""
    return f"SELECT {f'{groups}, ' if groups else ''}{found} FROM {_quoted(channel)}{grouped}"


def _listed(names: Names) -> str:
    return ", ".join(map(_quoted, (names,) if isinstance(names, str) else names))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
