"""The factorisation machine against the double sum of its definition."""

import itertools

import numpy as np
import tensorflow as tf

from models.interactions import factorisation_machine

RANDOM = np.random.default_rng(0)
VECTORS, DENSE, DENSE_VECTORS = RANDOM.normal(size=(3, 4, 5)), RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(2, 5))


def double_sum(vectors: np.ndarray) -> float:
    return sum(float(a @ b) for a, b in itertools.combinations(vectors, 2))


def test_it_is_the_sum_of_inner_products_of_all_pairs() -> None:
    result = factorisation_machine(tf.constant(VECTORS), dense=tf.zeros((3, 0), tf.float64), dense_vectors=None)
    np.testing.assert_allclose(result.numpy()[:, 0], [double_sum(row) for row in VECTORS])


def test_numbers_take_part_as_scaled_vectors() -> None:
    result = factorisation_machine(
        tf.constant(VECTORS), dense=tf.constant(DENSE), dense_vectors=tf.constant(DENSE_VECTORS)
    )
    rows = [np.concatenate([v, x[:, None] * DENSE_VECTORS]) for v, x in zip(VECTORS, DENSE, strict=True)]
    np.testing.assert_allclose(result.numpy()[:, 0], [double_sum(row) for row in rows])


def test_its_gradients_are_those_of_finite_differences() -> None:
    def total(vectors: tf.Tensor, dense_vectors: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(factorisation_machine(vectors, dense=tf.constant(DENSE), dense_vectors=dense_vectors) ** 2)

    theory, numeric = tf.test.compute_gradient(total, [VECTORS, DENSE_VECTORS])
    for one, other in zip(theory, numeric, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
