"""Linear models of the cost and of the output size of a variant, and their fit to samples.

    cost = fixed + Σ per_input[i] · rows of input i + per_output · rows of the output
    rows of the output = fixed + Σ per_input[i] · rows of input i

where the inputs are the blocks that a variant reads, in the order of its ports, a base before its delta.

A fit is a weighted least-squares one with coefficients of at least 0. The weight of a sample halves every `HALF_LIFE`
newer samples, so that the fit follows drift, and relative errors count, so that large inputs do not outweigh small
ones. Each coefficient is drawn to that of a prior, weakly: without samples the fit is the
prior, and a coefficient that the samples say nothing about stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HALF_LIFE = 8
"""Number of newer samples after which a sample counts half."""

_PRIOR = 1e-4
"""Weight of the prior, relative to that of the newest sample."""

_LEAST = 1e-9
"""Smallest coefficient and smallest expected value."""


@dataclass(frozen=True, slots=True)
class LinearModel:
    """A linear function of input sizes, and of the output's for costs.

    Attributes:
        fixed: the value for empty inputs.
        per_input: the increase per row of each input.
        per_output: the increase per row of the output.
    """

    fixed: float
    per_input: tuple[float, ...]
    per_output: float = 0.0

    def __call__(self, inputs: Sequence[float], output: float = 0.0) -> float:
        """Return the value for some input sizes.

        >>> LinearModel(1.0, (0.5, 2.0), 0.1)((10, 3), 20)
        14.0
        """
        total = self.fixed + self.per_output * output
        for each, rows in zip(self.per_input, inputs, strict=True):
            total += each * rows
        return total


@dataclass(frozen=True, slots=True)
class Measurement:
    """Measured cost of an invocation, or number of rows that it wrote.

    Attributes:
        inputs: number of rows of each input.
        output: number of rows of the output; 0 for samples of sizes.
        value: the measured cost, or the number of rows written.
    """

    inputs: tuple[float, ...]
    output: float
    value: float


def fit_linear(prior: LinearModel, samples: Sequence[Measurement]) -> LinearModel:
    """Return the model that fits some samples best.

    Args:
        prior: the model to start from, with as many inputs as the samples.
        samples: the samples, newest first.

    >>> seen = [Measurement((rows, 0.0), 0.0, 5 + 2 * rows) for rows in (1.0, 10.0, 100.0, 1000.0)] * 3
    >>> fitted = fit_linear(LinearModel(1.0, (1.0, 7.0)), seen)
    >>> round(fitted.fixed), round(fitted.per_input[0], 1), fitted.per_input[1]
    (5, 2.0, 7.0)
    """
    start = [max(each, _LEAST) for each in (prior.fixed, *prior.per_input, prior.per_output)]
    count = len(start)
    matrix = [[_PRIOR if row == column else 0.0 for column in range(count)] for row in range(count)]
    vector = [_PRIOR] * count
    for age, sample in enumerate(samples):
        features = [each * scale for each, scale in zip((1.0, *sample.inputs, sample.output), start, strict=True)]
        weight = 0.5 ** (age / HALF_LIFE) / max(sample.value, _LEAST) ** 2
        for row in range(count):
            vector[row] += weight * features[row] * sample.value
            for column in range(count):
                matrix[row][column] += weight * features[row] * features[column]
    factors = _non_negative_solution(matrix, vector)
    fixed, *per_input, per_output = (
        was if factor == 1.0 else scale * factor
        for was, scale, factor in zip((prior.fixed, *prior.per_input, prior.per_output), start, factors, strict=True)
    )
    return LinearModel(fixed, tuple(per_input), per_output)


def _non_negative_solution(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """Return the minimum of ½ x·Mx − v·x over x ≥ 0, by coordinate descent from 1: M is positive definite."""
    found = [1.0] * len(vector)
    for _ in range(2000):
        largest = 0.0
        for row, coefficients in enumerate(matrix):
            rest = sum(map(float.__mul__, coefficients, found)) - coefficients[row] * found[row]
            better = max(0.0, (vector[row] - rest) / coefficients[row])
            moved = abs(better - found[row])
            if moved > 1e-12:
                largest = max(largest, moved / max(1.0, found[row]))
                found[row] = better
        if largest < 1e-7:
            break
    return found
