"""Batch norm by its formula; padding must not weigh."""

import numpy as np
import pytest
import tensorflow as tf

from models.batch_norm import EPSILON, MOMENTUM, BatchNorm
from models.mode import Mode, Training
from models.replicas import Replicas
from models.weights import WeightMaker

REPLICAS = Replicas()
X = np.array([[1.0, 1000.0], [3.0, 1002.0], [8.0, 1001.0], [99.0, -5.0]])
LIVE = np.array([[1.0], [1.0], [1.0], [0.0]])


def made() -> tuple[BatchNorm, WeightMaker]:
    make = WeightMaker(REPLICAS, seed=1, dtype=tf.float64)
    return BatchNorm(make, "norm", width=2), make


def train(norm: BatchNorm, x: np.ndarray, live: np.ndarray) -> np.ndarray:
    training = Training(step=tf.constant(0, tf.int64), live=tf.constant(live), replicas=REPLICAS)
    return np.asarray(norm(tf.constant(x), Mode(tf.float64, training)))


def test_live_rows_are_normalised_by_their_own_moments() -> None:
    norm, _ = made()
    live = X[:3]
    expected = (live - live.mean(0)) / np.sqrt(live.var(0) + EPSILON)
    np.testing.assert_allclose(train(norm, X, LIVE)[:3], expected, rtol=1e-9)


def test_gamma_and_beta_scale_and_shift() -> None:
    norm, make = made()
    plain = train(norm, X, LIVE)
    make.trainable["norm/gamma"].assign([2.0, 3.0])
    make.trainable["norm/beta"].assign([-1.0, 5.0])
    norm_again = train(norm, X, LIVE)
    np.testing.assert_allclose(norm_again, plain * [2.0, 3.0] + [-1.0, 5.0], rtol=1e-7)


def test_inference_uses_the_moving_averages() -> None:
    norm, make = made()
    train(norm, X, LIVE)
    mean = (1 - MOMENTUM) * X[:3].mean(0)
    variance = MOMENTUM * 1.0 + (1 - MOMENTUM) * X[:3].var(0)
    np.testing.assert_allclose(make.statistics["norm/moving_mean"].numpy(), mean)
    np.testing.assert_allclose(make.statistics["norm/moving_variance"].numpy(), variance)
    scored = norm(tf.constant(X), Mode(tf.float64))
    np.testing.assert_allclose(scored, (X - mean) / np.sqrt(variance + EPSILON))


def test_moments_do_not_cancel_in_float32_once_the_average_is_near() -> None:
    make = WeightMaker(REPLICAS, seed=1, dtype=tf.float32)
    norm = BatchNorm(make, "norm", width=1)
    make.statistics["norm/moving_mean"].assign([1e4])
    x = (1e4 + np.random.default_rng(0).normal(size=(1000, 1))).astype(np.float32)
    training = Training(step=tf.constant(0, tf.int64), live=tf.ones((1000, 1)), replicas=REPLICAS)
    assert np.asarray(norm(tf.constant(x), Mode(tf.float32, training))).std() == pytest.approx(1.0, rel=2e-3)


def test_gradients_flow_through_the_moments() -> None:
    # The sum of normalised values is 0 whatever x is: its gradient must vanish, and not be 1 / sqrt(variance).
    norm, _ = made()
    x = tf.constant(X[:3])
    training = Training(step=tf.constant(0, tf.int64), live=tf.constant(LIVE[:3]), replicas=REPLICAS)
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.reduce_sum(norm(x, Mode(tf.float64, training)))
    np.testing.assert_allclose(tape.gradient(total, x), np.zeros((3, 2)), atol=1e-9)
