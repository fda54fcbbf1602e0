from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.model.version import END, START, Path, Reflection, Version

Expanded = dict[Path, set[tuple[tuple[int, ...], int]]]

CRAWL, SCORES = ("crawl", "join"), ("clicks", "score", "join")
# asynchronous scheduling, Table 1: the crawl of Sunday 3pm and before is point 1, then one point per arrival
SUN_3PM, MON_8AM, TUE_11AM, TUE_5PM, WED_2PM = range(1, 6)
MON_1AM, TUE_1AM, WED_1AM = range(1, 4)

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
        assert [version.consistent for version in reached] == [True, False, False, False]

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
    def test_paths_from_one_source_must_agree(self) -> None:
        one = Version.source("a", 1).through("f", 0).through("join", 0)
        same = Version.source("a", 1).through("g", 0).through("join", 0)
        other = Version.source("a", 2).through("g", 0).through("join", 0)
        assert one.joined(same).consistent
        assert not one.joined(other).consistent

    def test_a_mixture_of_logic_versions_is_inconsistent(self) -> None:
        one, two = (Version.source("a", 1).through("f", logic) for logic in (0, 1))
        assert one.consistent
        assert not one.joined(two).consistent

    def test_nothing_is_consistent(self) -> None:
        assert Version().consistent


class TestFrontier:
    def test_older_points_and_older_logic_are_behind(self) -> None:
        frontier = Version.source("a", 3).through("t", 1)
        assert not frontier.is_behind(frontier)
        assert Version.source("a", 2).through("t", 1).is_behind(frontier)
        assert Version.source("a", 3).through("t", 0).is_behind(frontier)
        assert not Version.source("a", 4).through("t", 1).is_behind(frontier)
        assert not Version.source("a", 3).through("t", 2).is_behind(frontier)

    def test_nothing_is_behind_the_empty_version(self) -> None:
        assert not Version.source("a", 0).is_behind(Version())
        assert not Version().is_behind(Version())

    @some
    @given(versions(), versions())
    def test_what_is_added_never_falls_behind(self, one: Version, two: Version) -> None:
        assert not one.joined(two).is_behind(one)


def test_a_version_reads_as_text() -> None:
    version = Version.source("a", 1).through("t", START).joined(Version.source("a", 2).through("t", END))
    assert str(version) == "a›t 1[s] 2[e]"
    assert str(crawl_and_scores(5, 1, 3)) == "clicks›score›join 1–3[0,0]; crawl›join 5[0]"
