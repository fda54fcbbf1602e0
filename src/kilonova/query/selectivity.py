"""Estimated selectivity of conditions: the share of rows that they keep.

The values of columns are not known when a migration is derived, so these are the defaults of System R's optimizer
(P. Selinger et al., "Access path selection in a relational database management system", SIGMOD 1979, table 1).
"""

from __future__ import annotations

import math

from kilonova.query.expression import Op, Scalar

_EQUAL, _COMPARED, _BETWEEN, _MOST_IN = 1 / 10, 1 / 3, 1 / 4, 1 / 2


def selectivity(condition: Scalar) -> float:
    """Return the share of rows, between 0 and 1, that a condition is expected to keep.

    >>> from kilonova.query.expression import column, compose, eq
    >>> selectivity(eq(column("site"), compose("'a.org'", op=Op.STRING)))
    0.1
    """
    bare = condition.bare
    operands = tuple(operand.bare for operand in bare.operands)
    match bare.op:
        case Op.AND:
            return math.prod(selectivity(each) for each in operands)
        case Op.OR:
            return 1 - math.prod(1 - selectivity(each) for each in operands)
        case Op.NOT:
            return 1 - selectivity(operands[0])
        case Op.COALESCE if len(operands) == 2 and operands[1].op is Op.BOOLEAN:
            return selectivity(operands[0])
        case Op.BOOLEAN:
            return float(bare.sql.upper() == "TRUE")
        case Op.IS:
            *denial, constant = bare.sql.upper().rpartition(" IS ")[2].split()
            kept = _same_as(operands[0], constant)
            return 1 - kept if denial else kept
        case Op.COMPARISON if bare.texts[1] == " <> ":
            return 1 - _EQUAL
        case Op.COMPARISON if "LIKE" not in bare.texts[1]:
            return _COMPARED
        case Op.RANGE:
            return _BETWEEN if "BETWEEN" in bare.texts[1] else min(_MOST_IN, _EQUAL * (len(operands) - 1))
        case _:
            return _EQUAL


def _same_as(value: Scalar, constant: str) -> float:
    """Return the share of rows in which a value is TRUE, FALSE or NULL."""
    match constant:
        case "TRUE":
            return selectivity(value)
        case "FALSE":
            return 1 - selectivity(value)
        case _:
            return _EQUAL
