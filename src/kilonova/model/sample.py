"""Sample of source rows: the rows whose keys have a small hash.

Whether a row belongs to a sample depends on the values of a few columns only, and on nothing else: rows of two channels
with equal values in these columns are both in the sample or both not, so that joins by them find their partners, and
groups by them are complete.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kilonova.errors import DeclarationError

_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSample:
    """Sample of the rows of source channels.

    Attributes:
        fraction: the fraction of the rows, or rather of the values of the columns; None if `rows` is given.
        rows: the approximate number of rows of the largest channel, of which the others get the same fraction.
        by: the columns by whose values rows are chosen; channels that lack one of them are read as a whole. If empty,
            rows are chosen by the key of their channel, or by all of their columns if it has no key.

    Raises:
        DeclarationError: not exactly one of `fraction` and `rows` is given, or it is not positive.
    """

    fraction: float | None = None
    rows: int | None = None
    by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        size = self.rows if self.fraction is None else self.fraction
        if size is None or (self.fraction is not None and (self.rows is not None or self.fraction > 1)) or size <= 0:
            raise DeclarationError("the size of the sample is not valid", hint="Write 1%, or a number of rows")

    def fraction_of(self, most: int) -> float:
        """Return the fraction of rows.

        Args:
            most: the number of rows of the largest channel.

        >>> RowSample(rows=50).fraction_of(1000), RowSample(rows=50).fraction_of(10)
        (0.05, 1.0)
        """
        if self.fraction is not None:
            return self.fraction
        assert self.rows is not None
        return min(1.0, self.rows / max(1, most))


def sample_of(text: str, by: tuple[str, ...] = ()) -> RowSample:
    """Parse the size of a sample.

    Raises:
        DeclarationError: it is neither a percentage nor a number of rows.

    >>> sample_of("1%").fraction, sample_of("5000").rows
    (0.01, 5000)
    """
    found = _TEXT.fullmatch(text.strip())
    if found is None or (not found[2] and "." in found[1]):
        raise DeclarationError(f"{text!r} is not the size of a sample", hint="Write 1%, or a number of rows")
    return RowSample(fraction=float(found[1]) / 100, by=by) if found[2] else RowSample(rows=int(found[1]), by=by)
