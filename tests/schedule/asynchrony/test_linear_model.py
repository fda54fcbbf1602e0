from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.schedule.asynchrony.linear_model import LinearModel, Measurement, fit_linear

PRIOR = LinearModel(2.0, (1e-3, 1e-4), 1e-3)


def measured(truth: LinearModel, draw: random.Random, count: int, noise: float = 0.0) -> list[Measurement]:
    samples = []
    for _ in range(count):
        inputs = (10 ** draw.uniform(2, 6), 10 ** draw.uniform(2, 6))
        output = 10 ** draw.uniform(1, 5)
        samples.append(Measurement(inputs, output, truth(inputs, output) * max(0.1, 1 + draw.gauss(0, noise))))
    return samples


def error(model: LinearModel, samples: list[Measurement]) -> float:
    return max(abs(model(each.inputs, each.output) / each.value - 1) for each in samples)


def test_without_samples_the_model_is_the_prior() -> None:
    assert fit_linear(PRIOR, []) == PRIOR


def test_one_sample_moves_the_whole_estimate() -> None:
    """One run that took five times as long says that similar ones will."""
    sample = Measurement((1000.0, 1000.0), 100.0, 5 * PRIOR((1000.0, 1000.0), 100.0))
    assert error(fit_linear(PRIOR, [sample]), [sample]) < 0.01


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0.1, 10))
def test_the_truth_is_found(seed: int, fixed: float, first: float, output: float) -> None:
    truth = LinearModel(fixed * 2.0, (first * 1e-3, 1e-4), output * 1e-3)
    draw = random.Random(seed)
    fitted = fit_linear(PRIOR, measured(truth, draw, 40))
    assert error(fitted, measured(truth, draw, 20)) < 0.05


def test_noise_is_averaged() -> None:
    draw = random.Random(7)
    truth = LinearModel(4.0, (3e-3, 2e-4), 0.0)
    fitted = fit_linear(PRIOR, measured(truth, draw, 60, noise=0.1))
    assert error(fitted, measured(truth, draw, 20)) < 0.25


def test_a_change_is_followed() -> None:
    """After a move to machines of half the speed the estimate is right within about two half-lives."""
    draw = random.Random(7)
    old, new = LinearModel(2.0, (1e-3, 1e-4), 1e-3), LinearModel(4.0, (2e-3, 2e-4), 2e-3)
    samples = measured(new, draw, 16) + measured(old, draw, 40)
    assert error(fit_linear(PRIOR, samples), measured(new, draw, 10)) < 0.35
    assert error(fit_linear(PRIOR, measured(new, draw, 40) + samples), measured(new, draw, 10)) < 0.05


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6)), max_size=20))
def test_no_coefficient_is_negative(rows: list[tuple[float, float, float]]) -> None:
    fitted = fit_linear(PRIOR, [Measurement((first, second), 0.0, value) for first, second, value in rows])
    assert min(fitted.fixed, *fitted.per_input, fitted.per_output) >= 0
