"""Ranges of points, as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_SHOWN = 5
"""Number of ranges named after point 0, at most: the newest ones."""


def ranges_of(points: Iterable[int]) -> list[tuple[int, int]]:
    """Return the ranges of points, which are given in order: the first and the last point of each.

    >>> ranges_of([1, 2, 3, 5])
    [(1, 3), (5, 5)]
    """
    found: list[tuple[int, int]] = []
    for point in points:
        if found and found[-1][1] == point - 1:
            found[-1] = (found[-1][0], point)
        else:
            found.append((point, point))
    return found


def describe_points(ranges: Sequence[tuple[int, int]]) -> str:
    """Return ranges of points as text; of many ranges, the first and the last ones.

    Args:
        ranges: the first and the last point of each, in order.

    >>> describe_points([(0, 0), (4, 7), (9, 9)]), describe_points([(0, 4)]), describe_points([(0, 0)])
    ('0, 4 to 7 and 9', '0 to 4', '0')
    >>> describe_points([(number, number) for number in range(0, 20, 2)])
    '0, …, 10, 12, 14, 16 and 18'
    """
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in ranges]
    if len(texts) > _SHOWN + 1:
        texts[1:-_SHOWN] = ["…"]
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
