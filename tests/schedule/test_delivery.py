"""The law of outlets: whatever fails or is killed, all that is wanted arrives, in order, or is given up on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from kilonova.model.event import Event, EventKind
from kilonova.model.subscription import DeliveryState, Lineage, Subscription, Webhook, wants
from kilonova.schedule.delivery import DeliveryRetries, after_delivery, after_failure

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
ENDLESS = DeliveryRetries(whole=timedelta(days=10**6))
SHORT = DeliveryRetries(first=timedelta(seconds=10), longest=timedelta(seconds=40), whole=timedelta(seconds=60))


def an_event(number: int, kind: EventKind, run: int | None, binding: str | None) -> Event:
    return Event(number=number, time=NOON, kind=kind, run=run, binding=binding, channels=(), text="")


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Events with gaps in their numbers."""
    numbers = draw(st.lists(st.integers(1, 60), unique=True, max_size=20).map(sorted))
    kinds, runs, bindings = st.sampled_from(EventKind), st.none() | st.just(3), st.sampled_from([None, "a", "b"])
    return [an_event(number, draw(kinds), draw(runs), draw(bindings)) for number in numbers]


OUTLETS = st.just(Lineage()) | st.builds(
    Webhook,
    name=st.just("w"),
    url=st.just("http://example.com"),
    kinds=st.frozensets(st.sampled_from(EventKind), min_size=1),
    binding=st.sampled_from([None, "a"]),
)
OUTCOMES = st.lists(st.sampled_from(["taken", "refused", "killed before", "killed after"]), max_size=60)


def play(
    subscription: Subscription, history: list[Event], outcomes: list[str], patience: DeliveryRetries, page: int
) -> tuple[list[int], list[int], datetime]:
    """What arrives, what is given up on, and when it is over."""
    standing, now, script = DeliveryState(cursor=0), NOON, iter(outcomes)
    arrived: list[int] = []
    given_up: list[int] = []
    seen = 0
    while True:
        events = [event for event in history if event.number > max(standing.cursor, seen)][:page]
        event = next((event for event in events if wants(subscription, event)), None)
        if event is None:
            if not events:
                return arrived, given_up, now
            seen = events[-1].number
            continue
        match next(script, "taken"):
            case "taken":
                arrived.append(event.number)
                standing = after_delivery(standing, event, now)
            case "refused":
                standing, abandoned = after_failure(standing, event, "no luck", patience, now)
                if abandoned:
                    given_up.append(event.number)
                now = standing.retry or now
            case "killed after":
                arrived.append(event.number)
                seen = 0
            case _:
                seen = 0


@given(OUTLETS, histories(), OUTCOMES, st.integers(1, 5))
def test_every_event_that_is_wanted_arrives_in_order(
    subscription: Subscription, history: list[Event], outcomes: list[str], page: int
) -> None:
    arrived, given_up, _ = play(subscription, history, outcomes, ENDLESS, page)
    assert list(dict.fromkeys(arrived)) == [event.number for event in history if wants(subscription, event)]
    assert arrived == sorted(arrived)
    assert given_up == []


@given(OUTLETS, histories(), OUTCOMES, st.integers(1, 5))
def test_what_does_not_arrive_is_given_up_on_and_holds_nothing_back(
    subscription: Subscription, history: list[Event], outcomes: list[str], page: int
) -> None:
    arrived, given_up, _ = play(subscription, history, outcomes, SHORT, page)
    assert sorted({*arrived, *given_up}) == [event.number for event in history if wants(subscription, event)]
    assert arrived == sorted(arrived)


def test_an_event_is_given_up_on_only_after_its_time() -> None:
    subscription = Webhook(name="w", url="http://example.com", kinds=frozenset({EventKind.FAILED}))
    history = [an_event(number, EventKind.FAILED, 1, None) for number in (1, 2)]
    assert play(subscription, history, ["refused"] * 3, SHORT, 9)[:2] == ([1, 2], [])
    arrived, given_up, over = play(subscription, history, ["refused"] * 4, SHORT, 9)
    assert (arrived, given_up) == ([2], [1])
    assert over - NOON == timedelta(seconds=10 + 20 + 40)
    assert play(subscription, history, ["refused"] * 7, SHORT, 9)[:2] == ([2], [1])  # the next has as much time


def test_what_was_delivered_forgets_failures_but_says_what_the_last_one_was() -> None:
    event = an_event(7, EventKind.FAILED, 1, None)
    troubled, _ = after_failure(DeliveryState(cursor=0), event, "no luck", ENDLESS, NOON)
    assert (troubled.cursor, troubled.attempts, troubled.failing) == (0, 1, NOON)
    assert after_delivery(troubled, event, NOON) == DeliveryState(cursor=7, problem="no luck", delivered=NOON)
