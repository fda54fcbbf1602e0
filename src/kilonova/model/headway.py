"""Headway: how far a run has come that still goes on.

What Spark has to do is counted in its own tasks, which become known stage by stage: the total grows while a step goes
on, and falls where a stage turns out not to be needed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Amount:
    """How many of the Spark tasks that are known so far are done."""

    done: int = 0
    total: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.done + other.done, self.total + other.total)


@dataclass(frozen=True, slots=True)
class Going:
    """A step that goes on, and what Spark has done of it."""

    step: str
    amount: Amount = Amount()

    def __str__(self) -> str:
        """In words.

        >>> str(Going("best", Amount(3, 8))), str(Going("best"))
        ('best 3/8', 'best')
        """
        return f"{self.step} {self.amount.done}/{self.amount.total}" if self.amount.total else self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class Headway:
    """How far a run has come.

    Attributes:
        steps: how many steps it has.
        ended: how many of them have ended.
        going: those that go on now.
    """

    steps: int
    ended: int
    going: tuple[Going, ...]

    def __str__(self) -> str:
        """In words.

        >>> str(Headway(steps=5, ended=2, going=(Going("best", Amount(3, 8)), Going("per_user"))))
        '2 of 5 steps; best 3/8, per_user'
        """
        return "; ".join(filter(None, (f"{self.ended} of {self.steps} steps", ", ".join(map(str, self.going)))))
