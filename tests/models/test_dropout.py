"""Dropout masks."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from models.dropout import dropout
from models.mode import Training
from models.replicas import Replicas

TRAINING = Training(step=tf.constant(7, tf.int64), live=tf.ones((1, 1)), replicas=Replicas())


@dataclasses.dataclass(frozen=True)
class AsReplica(Replicas):
    """Says that it is the replica of a given number."""

    number: int = 0

    def index(self) -> int:
        return self.number


def mask(
    size: int, *, width: int = 13, rate: float = 0.3, seed: int = 1, step: int = 7, replica: int = 0
) -> np.ndarray:
    training = dataclasses.replace(TRAINING, step=tf.constant(step, tf.int64), replicas=AsReplica(number=replica))
    return np.asarray(dropout(tf.ones((size, width)), rate=rate, seed=seed, layer="0", training=training))


def test_the_share_of_zeros_is_the_rate_and_the_mean_stays() -> None:
    values = mask(20_000)
    assert (values == 0).mean() == pytest.approx(0.3, abs=0.004)  # 4 standard errors of 260,000 draws
    assert values.mean() == pytest.approx(1.0, abs=0.006)
    np.testing.assert_allclose(values[values != 0], 1 / 0.7, rtol=1e-4)


@pytest.mark.parametrize("width", [1, 7, 8, 9, 400])
def test_replicas_have_the_rows_of_the_global_batch(width: int) -> None:
    whole = mask(12, width=width)
    parts = [mask(4, width=width, replica=replica) for replica in range(3)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_steps_seeds_and_columns_differ() -> None:
    base = mask(2000)
    for other in (mask(2000, step=8), mask(2000, seed=2), np.roll(base, 1, axis=0), np.roll(base, 1, axis=1)):
        assert (base == other).mean() == pytest.approx(0.3**2 + 0.7**2, abs=0.02)
