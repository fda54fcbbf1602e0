"""Refutation of formulas: the search for values of their variables that make all of them true.

The values that each variable can have are narrowed by the atoms that have to be true, and disjunctions of which one
part is left by that part, until nothing changes; then the parts of the first disjunction are tried. If variables are
independent of each other, the search is complete; the only dependence that it knows is that of nulls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kilonova.query.formulas import FALSE, TRUE, And, Atom, Formula, Or, Variable
from kilonova.query.value_sets import ValueSet

Assignment = dict[Variable, ValueSet]
"""The values that each variable can still have."""

STEPS = 100_000
"""Number of atoms that a search looks at before it gives up."""


class Search:
    """Searches that may look at a number of atoms together."""

    def __init__(self, steps: int = STEPS) -> None:
        """Allow some steps."""
        self._steps = steps

    def is_refuted(self, formulas: Sequence[Formula]) -> bool:
        """Return whether no values of the variables make all of some formulas true; False if the steps are used up."""
        return self._steps > 0 and not self._holds({}, list(formulas))

    def narrowed(self, formulas: Sequence[Formula]) -> Assignment:
        """Return values without which no variable can be where all of some formulas are true.

        The parts of disjunctions are not tried, so some of the values may be impossible.
        """
        values: Assignment = {}
        return {} if self._steps <= 0 or self._propagated(values, list(formulas)) is None else values

    def _holds(self, values: Assignment, formulas: list[Formula]) -> bool:
        values = dict(values)
        open_ = self._propagated(values, formulas)
        if open_ is None:
            return False
        if not open_ or self._steps <= 0:
            return True
        chosen, *rest = open_
        return any(self._holds(values, [part, *rest]) for part in chosen.parts)

    def _propagated(self, values: Assignment, formulas: list[Formula]) -> list[Or] | None:
        """Narrow the values of variables to those that some formulas allow.

        Returns:
            The disjunctions that are neither true nor false by then, without the parts that are false; None if the
            formulas contradict each other.
        """
        todo, open_ = list(formulas), list[Or]()
        while True:
            for part in _conjuncts(todo):
                if isinstance(part, Or):
                    open_.append(part)
                elif not _narrow(values, part.variable, part.values):
                    return None
            todo = []
            known: Assignment = {}
            while known != values:
                known = dict(values)
                if not all(_link(values, variable) for variable in known):
                    return None
            left = []
            for either in open_:
                found = self._evaluated(either, values)
                if found == FALSE:
                    return None
                if isinstance(found, Or):
                    left.append(found)
                elif found != TRUE:
                    todo.append(found)
            open_ = left
            if not todo:
                return open_

    def _evaluated(self, formula: Formula, values: Assignment) -> Formula:
        """Return a formula without what the values of variables make true or false."""
        if isinstance(formula, Atom):
            self._steps -= 1
            known = values.get(formula.variable)
            if known is None:
                return formula
            return TRUE if known <= formula.values else FALSE if (known & formula.values).empty else formula
        decided, neutral = (FALSE, TRUE) if isinstance(formula, And) else (TRUE, FALSE)
        found = []
        for part in formula.parts:
            one = self._evaluated(part, values)
            if one == decided:
                return decided
            if one != neutral:
                found.append(one)
        return found[0] if len(found) == 1 else type(formula)(tuple(found))


def _conjuncts(formulas: Iterable[Formula]) -> Iterator[Atom | Or]:
    """Yield the parts of conjunctions."""
    for formula in formulas:
        if isinstance(formula, And):
            yield from _conjuncts(formula.parts)
        else:
            yield formula


def _narrow(values: Assignment, variable: Variable, allowed: ValueSet) -> bool:
    """Restrict a variable; return whether a value is left."""
    known = values.get(variable)
    found = allowed if known is None else known & allowed
    values[variable] = found
    return not found.empty


def _link(values: Assignment, variable: Variable) -> bool:
    """Let nulls of a variable and of its operands agree; return whether every variable has a value left."""
    if not variable.operands:
        return True
    own = values[variable]
    if not own.null:
        for operand in variable.operands:
            if not _narrow(values, operand, operand.present) or not _link(values, operand):
                return False
        return True
    known = [values.get(operand, operand.anything) for operand in variable.operands]
    if any(not operand.pairs for operand in known):
        return _narrow(values, variable, ~variable.present)
    if variable.exact and not any(operand.null for operand in known):
        return _narrow(values, variable, variable.present)
    if variable.exact and not own.pairs:
        nullable = [operand for operand, held in zip(variable.operands, known, strict=True) if held.null]
        if len(nullable) == 1:
            return _narrow(values, nullable[0], ~nullable[0].present) and _link(values, nullable[0])
    return True
