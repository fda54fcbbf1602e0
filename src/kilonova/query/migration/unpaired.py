"""Reason for which no joint relation of two queries was found."""

from __future__ import annotations

from kilonova.query.tree import Aggregate, Join, Node, Scan, Top, Union, Unit, Window, channels


class Unpaired(Exception):
    """Signal that no joint relation of two queries was found.

    Attributes:
        reason: the reason, as shown to users.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def described(node: Node) -> str:
    """Return a short text for a relation."""
    match node:
        case Scan():
            return node.channel
        case Unit():
            return "a single row"
        case _:
            what = {
                Aggregate: "groups",
                Window: "window functions",
                Union: "a union",
                Top: "first rows",
                Join: "a join",
            }
            read = ", ".join(channels(node))
            return f"{what.get(type(node), 'a query')} of {read}" if read else what.get(type(node), "a query")
