from __future__ import annotations

from itertools import product

import pytest

from kilonova.catalog import events
from kilonova.catalog.database import Catalog
from kilonova.model.event import Event, EventKind

KINDS = (EventKind.LAUNCHED, EventKind.SUCCEEDED, EventKind.FAILED, EventKind.SERVER_SILENT)


@pytest.fixture
def eventful(catalog: Catalog) -> Catalog:
    channels = ((), ("clicks",), ("users", "Clicks"), ("clicks", "users"), ("clicks_", "more"))
    with catalog.writing() as tx:
        for number, (kind, binding, named) in enumerate(product(KINDS[:3], (None, "a", "b"), channels)):
            events.record(tx, kind, binding=binding, channels=named, run=number)
        events.record(tx, EventKind.SERVER_SILENT, text="one")
    return catalog


def test_events_come_newest_first_as_the_filters_leave_them(eventful: Catalog) -> None:
    with eventful.reading() as tx:
        every = events.since(tx, 0)[::-1]
        choices = product(
            ((), KINDS[:1], KINDS[1:], KINDS[:2] * 2),
            (None, "a", "x"),
            (None, "clicks", "users", "x"),
            (None, 20),
            (0, 9),
        )
        for kinds, binding, channel, before, since in choices:
            left = [
                each
                for each in every
                if (not kinds or each.kind in kinds)
                and binding in (None, each.binding)
                and (channel is None or channel in each.channels)
                and (before is None or each.number < before)
                and each.number > since
            ]

            def page(limit: int) -> list[Event]:
                return events.before(tx, before, limit, kinds=kinds, binding=binding, channel=channel, since=since)  # noqa: B023

            assert page(100) == left
            assert page(3) == left[:3]


def test_only_some_thousands_of_events_are_searched_for_a_channel(
    eventful: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with eventful.reading() as tx:
        found = [each.number for each in events.before(tx, None, 100, channel="clicks")]
        monkeypatch.setattr(events, "_AS_FAR", 10)
        newest = events.newest(tx)
        assert [each.number for each in events.before(tx, None, 100, channel="clicks")] == [
            number for number in found if number > newest - 10
        ]
