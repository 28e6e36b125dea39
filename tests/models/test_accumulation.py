"""A batch in parts must be the batch: the same losses and weights, in float64 to rounding."""

import numpy as np
import pytest
import tensorflow as tf

from models.build import build_model
from models.ranking_model import RankingModel
from tests.models.samples import SCHEMA, Stepper, largest_difference, make_batch, make_optimizers, make_spec, state

Strategies = dict[str, tf.distribute.Strategy | None]


def built(parts: int, *, strategy: tf.distribute.Strategy | None = None, optimizer: str = "adam") -> RankingModel:
    spec = make_spec("deepfm", dropout=0.25, embeddings={"placement": "sharded"})
    optimizers = make_optimizers(optimizer, l2=0.01)
    return build_model(SCHEMA, spec, optimizers=optimizers, seed=3, strategy=strategy, accumulate_steps=parts)


@pytest.fixture(scope="module")
def whole() -> tuple[list[float], dict[str, np.ndarray]]:
    stepper = Stepper(built(1))
    return [stepper(make_batch(22, seed=i, padded=2)) for i in range(3)], state(stepper.model)


@pytest.mark.parametrize(("parts", "strategy"), [(3, "none"), pytest.param(5, "mirrored", marks=pytest.mark.slow)])
def test_parts_add_up_to_the_step_on_the_whole_batch(
    strategies: Strategies, whole: tuple[list[float], dict[str, np.ndarray]], parts: int, strategy: str
) -> None:
    stepper = Stepper(built(parts, strategy=strategies[strategy]))
    losses = [stepper(make_batch(22, seed=i, padded=2)) for i in range(3)]
    np.testing.assert_allclose(losses, whole[0], rtol=1e-12)
    assert largest_difference(state(stepper.model), whole[1]) < 1e-10


@pytest.mark.slow
def test_more_parts_than_rows_are_no_harm(whole: tuple[list[float], dict[str, np.ndarray]]) -> None:
    stepper = Stepper(built(30))
    assert stepper(make_batch(22, seed=0, padded=2)) == pytest.approx(whole[0][0], rel=1e-12)
