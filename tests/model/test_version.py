from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.model.version import END, START, Path, Reflection, Validity, Version, frontier
from kilonova.model.version_vector import Ancestor, ancestors, component

Expanded = dict[Path, set[tuple[tuple[int, ...], int]]]

CRAWL, SCORES = ("crawl", "join"), ("clicks", "score", "join")
# asynchronous scheduling, Table 1: the crawl of Sunday 3pm and before is point 1, then one point per arrival
SUN_3PM, MON_8AM, TUE_11AM, TUE_5PM, WED_2PM = range(1, 6)
MON_1AM, TUE_1AM, WED_1AM = range(1, 4)

SUNDAY = datetime(2026, 1, 4, tzinfo=UTC)
HOURS = {
    "crawl": (15, 24 + 8, 48 + 11, 48 + 17, 72 + 14),
    "clicks": (24 + 1, 48 + 1, 72 + 1),
}
"""When each point of Table 1 came, in hours since Sunday."""


def at(hours: int) -> datetime:
    return SUNDAY + timedelta(hours=hours)


def validities(hours: dict[str, tuple[int, ...]]) -> Callable[[str, int], Validity]:
    """Return the abutting intervals of points 1, 2, … that came at some hours; point 0 was there before."""

    def of(source: str, point: int) -> Validity:
        came = hours[source]
        return Validity(at(came[point - 1]) if point else None, at(came[point]) if point < len(came) else None)

    return of


table_1 = validities(HOURS)
some = settings(max_examples=100, deadline=None)


def crawl_and_scores(crawl: int, scores: int, last_scores: int | None = None) -> Version:
    return Version.of(
        {
            CRAWL: (Reflection((0,), crawl, crawl),),
            SCORES: (Reflection((0, 0), scores, scores if last_scores is None else last_scores),),
        }
    )


def expanded(version: Version) -> Expanded:
    return {
        path: {(r.logic, point) for r in entry for point in range(r.first, r.last + 1)}
        for path, entry in version.entries
    }


@st.composite
def versions(draw: st.DrawFn) -> Version:
    version = Version()
    for source in draw(st.lists(st.sampled_from(("a", "b")), max_size=5)):
        seen = Version.source(source, draw(st.integers(0, 6)))
        version = version.joined(seen.through("t", draw(st.integers(0, 1))))
    return version


class TestAsynchronousScheduling:
    def test_a_base_advances_by_the_deltas_of_an_asynchronous_join(self) -> None:
        """Section 2.4: four delta blocks, the last three with scores that the base before did not have."""
        base = crawl_and_scores(SUN_3PM, MON_1AM)
        steps = [
            (SUN_3PM, MON_8AM, MON_1AM),
            (MON_8AM, TUE_11AM, TUE_1AM),
            (TUE_11AM, TUE_5PM, TUE_1AM),
            (TUE_5PM, WED_2PM, WED_1AM),
        ]
        reached = []
        for old, new, scores in steps:
            base = base.advanced(crawl_and_scores(old, scores), crawl_and_scores(new, scores))
            reached.append(base)
        assert reached == [
            crawl_and_scores(MON_8AM, MON_1AM),
            crawl_and_scores(TUE_11AM, MON_1AM, TUE_1AM),
            crawl_and_scores(TUE_5PM, MON_1AM, TUE_1AM),
            crawl_and_scores(WED_2PM, MON_1AM, WED_1AM),
        ]
        assert [version.is_consistent(table_1) for version in reached] == [True, False, False, False]

    @pytest.mark.parametrize(
        ("provenance", "latest_start", "earliest_end", "consistent"),
        [
            (crawl_and_scores(MON_8AM, MON_1AM), 24 + 8, 48 + 1, True),
            (crawl_and_scores(MON_8AM, TUE_1AM), 48 + 1, 48 + 11, True),
            (crawl_and_scores(TUE_11AM, MON_1AM), 48 + 11, 48 + 1, False),
            (crawl_and_scores(WED_2PM, MON_1AM, WED_1AM), 72 + 14, 48 + 1, False),
        ],
    )
    def test_table_4(self, provenance: Version, latest_start: int, earliest_end: int, consistent: bool) -> None:
        assert provenance.validity(table_1) == Validity(at(latest_start), at(earliest_end))
        assert provenance.is_consistent(table_1) == consistent

    def test_synchronous_joins_are_consistent(self) -> None:
        """Table 2: each crawl is joined with the scores of its time; the last is as of now."""
        steps = [(MON_8AM, MON_1AM), (TUE_11AM, TUE_1AM), (TUE_5PM, TUE_1AM), (WED_2PM, WED_1AM)]
        joined = [crawl_and_scores(crawl, scores) for crawl, scores in steps]
        assert all(version.is_consistent(table_1) for version in joined)
        assert joined[-1].validity(table_1) == Validity(at(72 + 14), None)

    def test_a_synchronous_delta_replaces_the_whole_entry(self) -> None:
        base = crawl_and_scores(MON_8AM, MON_1AM)
        end = crawl_and_scores(TUE_11AM, TUE_1AM)
        assert base.advanced(base, end) == end

    def test_a_union_advances_one_side_only(self) -> None:
        """Section 3.3: the entry of the input that was not propagated stays."""
        left, right = ("left", "union"), ("right", "union")
        nine = (Reflection((0,), 9, 9),)
        ten = (Reflection((0,), 10, 10),)
        base = Version.of({left: nine, right: nine})
        assert base.advanced(Version.of({right: nine}), Version.of({right: ten})) == Version.of(
            {left: nine, right: ten}
        )


class TestAlgebra:
    @some
    @given(versions(), versions(), versions())
    def test_advancing_is_set_arithmetic(self, one: Version, two: Version, three: Version) -> None:
        mine, old, new = expanded(one), expanded(two), expanded(three)
        expected = dict(mine)
        for path in new:
            expected[path] = (mine.get(path, set()) - old.get(path, set())) | new[path]
        assert expanded(one.advanced(two, three)) == expected

    @some
    @given(versions(), versions(), versions())
    def test_joining_is_union(self, one: Version, two: Version, three: Version) -> None:
        mine, other = expanded(one), expanded(two)
        expected = {path: mine.get(path, set()) | other.get(path, set()) for path in mine | other}
        assert expanded(one.joined(two)) == expected
        assert one.joined(two) == two.joined(one)
        assert one.joined(one) == one
        assert one.joined(two).joined(three) == one.joined(two.joined(three))

    @some
    @given(versions())
    def test_equal_sets_are_equal_versions(self, one: Version) -> None:
        again = Version()
        for path, points in expanded(one).items():
            for logic, point in sorted(points, reverse=True):
                again = again.joined(Version.of({path: (Reflection(logic, point, point),)}))
        assert again == one

    @some
    @given(versions(), st.integers(0, 3))
    def test_a_task_lengthens_every_path(self, one: Version, logic: int) -> None:
        through = expanded(one.through("u", logic))
        assert through == {
            (*path, "u"): {((*seen, logic), point) for seen, point in points} for path, points in expanded(one).items()
        }


class TestConsistency:
    @some
    @given(
        st.dictionaries(
            st.sampled_from("ab"), st.lists(st.integers(0, 12), max_size=4).map(sorted).map(tuple), min_size=2
        ),
        st.data(),
    )
    def test_there_is_a_time_as_of_which_every_snapshot_was_the_newest(
        self, hours: dict[str, tuple[int, ...]], data: st.DataObject
    ) -> None:
        version = Version()
        for source in data.draw(st.lists(st.sampled_from("ab"), max_size=4)):
            point = data.draw(st.integers(0, len(hours[source])))
            path = Version.source(source, point).through(data.draw(st.sampled_from("fg")), data.draw(st.integers(0, 1)))
            version = version.joined(path)
        reflected = {(path[0], point) for path, seen in expanded(version).items() for _, point in seen}
        times = [hour + 0.5 for hour in range(-1, 14)]
        newest = [{source: sum(hour <= time for hour in came) for source, came in hours.items()} for time in times]
        together = any(all(now[source] == point for source, point in reflected) for now in newest)
        unmixed = all(len({logic for logic, _ in seen}) <= 1 for seen in expanded(version).values())
        assert version.is_consistent(validities(hours)) == (together and unmixed)

    def test_points_of_two_sources_that_were_never_the_newest_together_are_inconsistent(self) -> None:
        came = validities({"a": (1, 4), "b": (2, 3)})
        join = [Version.source("a", 2).joined(Version.source("b", point)) for point in (1, 2)]
        assert [version.is_consistent(came) for version in join] == [False, True]

    def test_nothing_is_consistent(self) -> None:
        assert Version().is_consistent(table_1)


class TestOrder:
    def test_older_points_and_older_logic_precede(self) -> None:
        reached = Version.source("a", 3).through("t", 1)
        assert not reached.precedes(reached)
        assert Version.source("a", 2).through("t", 1).precedes(reached)
        assert Version.source("a", 3).through("t", 0).precedes(reached)
        assert not Version.source("a", 4).through("t", 1).precedes(reached)
        assert not Version.source("a", 3).through("t", 2).precedes(reached)

    def test_versions_of_which_each_is_newer_in_something_are_incomparable(self) -> None:
        one = Version.source("a", 3).through("t", 0).through("u", 1)
        other = Version.source("a", 3).through("t", 1).through("u", 0)
        assert not one.precedes(other)
        assert not other.precedes(one)
        assert frontier([one, other]) == (one, other)
        assert frontier([one, other, Version.source("a", 3).through("t", 1).through("u", 1)])[:-1] == ()

    @some
    @given(versions(), versions())
    def test_a_version_precedes_another_if_nothing_is_newer_and_something_is_older(
        self, one: Version, other: Version
    ) -> None:
        mine, theirs = expanded(one), expanded(other)
        components = [
            (max(map(value, mine[path])), max(map(value, theirs[path])))
            for path in mine.keys() & theirs.keys()
            for value in (
                lambda seen: seen[1],
                *(lambda seen, task=task: seen[0][task] for task in range(len(path) - 1)),
            )
        ]
        less, greater = (any(compare) for compare in ((a < b for a, b in components), (a > b for a, b in components)))
        assert one.precedes(other) == (less and not greater)

    @some
    @given(st.lists(versions(), max_size=6))
    def test_the_frontier_holds_what_precedes_nothing(self, given: list[Version]) -> None:
        same_paths = [each for each in given if dict(each.entries).keys() == dict(given[0].entries).keys()]
        assert set(frontier(same_paths)) == {
            each for each in same_paths if not any(each.precedes(other) for other in same_paths)
        }

    def test_nothing_precedes_the_empty_version(self) -> None:
        assert not Version.source("a", 0).precedes(Version())
        assert not Version().precedes(Version())

    @some
    @given(versions(), versions())
    def test_what_is_added_never_goes_back(self, one: Version, two: Version) -> None:
        assert one.joined(two).reaches(one)
        assert not one.joined(two).precedes(one)


class TestLogicEvolution:
    """The examples of logic evolution, 2.3 and 2.5: vectors have the entries place URLs, crawled pages, extraction."""

    @staticmethod
    def extracted(crawl: int, logic: int) -> Version:
        places, pages = Version.source("place_urls", 0), Version.source("crawled_pages", crawl)
        return places.through("extracted", logic).joined(pages.through("extracted", logic))

    @staticmethod
    def vector(version: Version) -> list[int]:
        names = ("place_urls", True), ("crawled_pages", True), ("extracted", False)
        return [int(component(version, Ancestor(*name))) for name in names]

    def test_figure_3(self) -> None:
        """Non-incremental processing: each run emits a base; the user upgrades the task before the third."""
        bases = [self.extracted(0, 0), self.extracted(1, 0), self.extracted(2, 1)]
        assert list(map(self.vector, bases)) == [[0, 0, 0], [0, 1, 0], [0, 2, 1]]
        assert bases[0].precedes(bases[1])
        assert bases[1].precedes(bases[2])
        assert frontier(bases) == (bases[2],)
        assert [each.name for each in ancestors(bases)] == ["crawled_pages", "place_urls", "extracted"]

    def test_figure_4(self) -> None:
        """Incremental processing without migration: a delta of the old logic, and a base of the new logic."""
        base = self.extracted(0, 0)
        crawl = [Version.source("crawled_pages", point).through("extracted", 0) for point in (0, 1)]
        after_delta = base.advanced(*crawl)
        assert self.vector(after_delta) == [0, 1, 0]
        assert base.precedes(after_delta)
        upgraded = self.extracted(2, 1)
        assert self.vector(upgraded) == [0, 2, 1]
        assert frontier([base, after_delta, upgraded]) == (upgraded,)

    def test_figure_5(self) -> None:
        """With a migration: Δ([0, 1, 0] → [0, 1, 1]) comes between; more of the old logic would be incomparable."""
        migrated = self.extracted(1, 1)
        assert self.extracted(1, 0).precedes(migrated)
        assert migrated.precedes(self.extracted(2, 1))
        late = self.extracted(2, 0)
        assert frontier([self.extracted(1, 0), migrated, late]) == (migrated, late)


def test_a_version_reads_as_text() -> None:
    version = Version.source("a", 1).through("t", START).joined(Version.source("a", 2).through("t", END))
    assert str(version) == "a›t 1[s] 2[e]"
    assert str(crawl_and_scores(5, 1, 3)) == "clicks›score›join 1–3[0,0]; crawl›join 5[0]"
