from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kilonova.catalog import events, subscriptions
from kilonova.catalog.database import Catalog
from kilonova.catalog.subscriptions import RegisteredSubscription
from kilonova.errors import CatalogError, DeclarationError, NotFound
from kilonova.model.event import EventKind
from kilonova.model.subscription import DeliveryState, Lineage, Webhook
from tests.catalog.building import LEASE
from tests.databases import Clock

HOOK = Webhook(
    name="w", url="https://example.com/x", kinds=frozenset({EventKind.FAILED, EventKind.STUCK}), secret="SECRET"
)


def add(catalog: Catalog, webhook: Webhook = HOOK) -> RegisteredSubscription:
    with catalog.writing() as tx:
        subscriptions.add(tx, webhook)
        [known] = [each for each in subscriptions.subscriptions(tx) if each.subscription == webhook]
    return known


def claim(catalog: Catalog, known: RegisteredSubscription, holder: str) -> DeliveryState | None:
    with catalog.writing() as tx:
        return subscriptions.claim(tx, known, holder, LEASE)


def record(catalog: Catalog, known: RegisteredSubscription, holder: str, standing: DeliveryState) -> bool:
    with catalog.writing() as tx:
        return subscriptions.record(tx, known, holder, standing)


def test_a_subscription_gets_the_events_after_its_creation(catalog: Catalog) -> None:
    with catalog.writing() as tx:
        events.record(tx, EventKind.FAILED)
        subscriptions.add_lineage(tx)
        events.record(tx, EventKind.FAILED)
        subscriptions.add_lineage(tx)
    add(catalog)
    with catalog.reading() as tx:
        found = {each.subscription: each.standing.cursor for each in subscriptions.subscriptions(tx)}
    assert found == {Lineage(): 1, HOOK: 2}


def test_names_are_given_once_and_known(catalog: Catalog) -> None:
    add(catalog)
    with pytest.raises(DeclarationError, match="a webhook w already exists"):
        add(catalog)
    with pytest.raises(NotFound, match="no such binding"):
        add(catalog, replace(HOOK, name="v", binding="nowhere"))
    with catalog.writing() as tx:
        subscriptions.add_lineage(tx)
        for name in ("ww", "lineage"):
            with pytest.raises(NotFound, match="no webhook"):
                subscriptions.remove(tx, name)
        subscriptions.remove(tx, "w")
        assert [each.subscription for each in subscriptions.subscriptions(tx)] == [Lineage()]


def test_one_server_at_a_time_serves_a_subscription_until_its_lease_expires(catalog: Catalog, clock: Clock) -> None:
    known = add(catalog)
    assert claim(catalog, known, "one") == DeliveryState(cursor=0)
    assert claim(catalog, known, "two") is None
    after = DeliveryState(cursor=3, attempts=2, failing=clock.now, retry=clock.now, problem="x", delivered=clock.now)
    assert record(catalog, known, "one", after)
    assert not record(catalog, known, "two", DeliveryState(cursor=9))
    clock.forward(LEASE.total_seconds() - 1)
    with catalog.writing() as tx:
        subscriptions.renew(tx, "one", LEASE)
    clock.forward(2)
    assert claim(catalog, known, "two") is None
    clock.forward(LEASE.total_seconds())
    assert claim(catalog, known, "two") == after
    assert not record(catalog, known, "one", DeliveryState(cursor=9))
    with catalog.writing() as tx:
        subscriptions.release(tx, known, "one")
    assert claim(catalog, known, "one") is None
    with catalog.writing() as tx:
        subscriptions.release(tx, known, "two")
    assert claim(catalog, known, "one") == after


def test_a_webhook_that_is_created_again_is_another_one(catalog: Catalog, clock: Clock) -> None:
    known = add(catalog)
    assert claim(catalog, known, "one") is not None
    with catalog.writing() as tx:
        subscriptions.remove(tx, "w")
    clock.forward(1)
    again = add(catalog)
    assert claim(catalog, known, "one") is None
    assert not record(catalog, known, "one", DeliveryState(cursor=9))
    assert claim(catalog, again, "two") == DeliveryState(cursor=0)
    with catalog.writing() as tx:
        subscriptions.release(tx, known, "one")
    assert claim(catalog, again, "three") is None


def test_an_outlet_of_a_later_release_is_refused(catalog: Catalog) -> None:
    add(catalog)
    with catalog.writing() as tx:
        tx.connection.execute(subscriptions._TABLE.update().values(definition={"outlet": "pigeon"}))
        with pytest.raises(CatalogError, match="unknown subscription, pigeon"):
            subscriptions.subscriptions(tx)


def test_a_lease_is_no_longer_than_it_says(catalog: Catalog, clock: Clock) -> None:
    known = add(catalog)
    claim(catalog, known, "one")
    with catalog.reading() as tx:
        [held] = subscriptions.subscriptions(tx)
    assert (held.holder, held.lease_until) == ("one", clock.now + timedelta(seconds=10))
