"""The model's gradient is that of its loss, and it learns."""

from __future__ import annotations

import numpy as np
import pytest

from scenarios.jobs import gpt as model
from scenarios.jobs.describe import GPT_BYTES
from scenarios.jobs.gpt import (
    CONTEXT,
    PARAMETERS,
    VOCABULARY,
    Adam,
    initial,
    loss_and_gradient,
    tokens_of,
    views,
)


def batch(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, VOCABULARY, (2, CONTEXT + 1))
    return tokens[:, :-1], tokens[:, 1:]


@pytest.mark.parametrize("name", list(model.shapes()))
def test_the_gradient_of_every_parameter_is_the_slope_of_the_loss(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "_GELU", np.float64(model._GELU))
    rng = np.random.default_rng(5)
    vector = initial(3).astype(np.float64)
    vector += rng.standard_normal(PARAMETERS) * 0.05  # biases and norms away from 0 and 1
    given, wanted = batch()
    _, gradient = loss_and_gradient(vector, given, wanted)
    part = views(np.arange(PARAMETERS))[name].ravel()
    direction = np.zeros(PARAMETERS)
    direction[part] = rng.standard_normal(len(part))
    step = 1e-5
    slope = (
        loss_and_gradient(vector + step * direction, given, wanted)[0]
        - loss_and_gradient(vector - step * direction, given, wanted)[0]
    )
    assert slope / (2 * step) == pytest.approx(float(gradient @ direction), rel=2e-4, abs=1e-7)


def test_it_learns_a_short_text() -> None:
    text = tokens_of(b"the quick brown fox jumps over the lazy dog. " * 40)
    parameters, rng = initial(0), np.random.default_rng(0)
    adam, losses = Adam(parameters), []
    for _ in range(60):
        at = rng.integers(0, len(text) - CONTEXT - 1, 2)
        rows = np.stack([text[a : a + CONTEXT + 1] for a in at])
        loss, gradient = loss_and_gradient(parameters, rows[:, :-1], rows[:, 1:])
        adam.step(gradient)
        losses.append(loss)
    assert losses[0] == pytest.approx(np.log(VOCABULARY), abs=0.3) and losses[-1] < 0.5 * losses[0]


def test_tokens_are_printable_ascii_and_one_more() -> None:
    assert list(tokens_of(b" A~\n\xff")) == [0, 33, 94, 95, 95]
    assert PARAMETERS == 210_304 and PARAMETERS * 4 == GPT_BYTES
