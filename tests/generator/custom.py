"""Per-key functions of two custom encodings."""

from __future__ import annotations


class Stock:
    """Amounts that are added up; a key whose sum is zero is absent."""

    def merge(self, base, delta):  # type: ignore[no-untyped-def]
        total = sum(row["v"] or 0 for row in [*base, *delta])
        return [(base or delta)[0] | {"v": total}] if total else []

    def chain(self, first, second):  # type: ignore[no-untyped-def]
        return self.merge(first, second)

    def diff(self, old, new):  # type: ignore[no-untyped-def]
        less, more = (sum(row["v"] or 0 for row in rows) for rows in (old, new))
        return [(new or old)[0] | {"v": more - less}]


class Peak:
    """The largest value; there is no way back, and so no diff."""

    def merge(self, base, delta):  # type: ignore[no-untyped-def]
        return [max([*base, *delta], key=lambda row: row["v"] or 0)]

    def chain(self, first, second):  # type: ignore[no-untyped-def]
        return self.merge(first, second)
