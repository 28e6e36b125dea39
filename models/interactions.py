"""Factorisation machine: the sum of the inner products of all pairs of vectors. Letters: `B`, `F`, `D`, `N`."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from models.split_inputs import SplitInputs

__all__ = ["factorisation_machine", "factorisation_machine_of_sides"]


def _pairs(vectors: tf.Tensor, extra: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns (|s|^2 - sum_f |v_f|^2) / 2 with s = extra + sum_f v_f, then s, and the vectors [B, F D].

    Squares are flat, [B, F D]: broadcasts within [B, F, D] take up to twice the time.
    """
    num_fields, width = int(vectors.shape[1]), int(vectors.shape[2])
    flat = tf.reshape(vectors, [-1, num_fields * width])
    total = tf.reduce_sum(vectors, 1) + extra
    value = 0.5 * (tf.reduce_sum(total * total, 1, keepdims=True) - tf.reduce_sum(flat * flat, 1, keepdims=True))
    return value, total, flat


@tf.custom_gradient
def _trained_pairs(
    vectors: tf.Tensor, extra: tf.Tensor
) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
    """Returns the value of `_pairs`; the gradients are dy (s - v_f) and dy s, flat as well."""
    num_fields = int(vectors.shape[1])
    value, total, flat = _pairs(vectors, extra)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        of_vectors = (tf.tile(total, [1, num_fields]) - flat) * upstream
        return tf.reshape(of_vectors, tf.shape(vectors)), total * upstream

    return value, gradient


def factorisation_machine(
    vectors: tf.Tensor, *, dense: tf.Tensor, dense_vectors: tf.Tensor | None, trains: bool = True
) -> tf.Tensor:
    """Returns [B, 1]: sum over i < j of <v_i, v_j>, Rendle (2010), by his linear-time identity.

    Args:
        vectors: [B, F, D] of the fields.
        dense: [B, N] numbers; number n takes part as the vector x_n V_n.
        dense_vectors: V, [N, D], or None if there are no numbers.
        trains: whether a gradient will be asked for; without, the graph has none to carry.
    """

    def pairs(extra: tf.Tensor) -> tf.Tensor:
        return _trained_pairs(vectors, extra) if trains else _pairs(vectors, extra)[0]

    if dense_vectors is None:
        return pairs(tf.zeros_like(vectors[:, 0, :]))
    # |s|^2 counts each number's vector with itself too: sum_n x_n^2 |V_n|^2 is taken off again.
    squares = tf.reduce_sum(dense_vectors * dense_vectors, 1, keepdims=True)
    return pairs(tf.matmul(dense, dense_vectors)) - 0.5 * tf.matmul(dense * dense, squares)


def factorisation_machine_of_sides(split: SplitInputs, *, dense_vectors: tf.Tensor | None) -> tf.Tensor:
    """Returns [Q N, 1], as `factorisation_machine` of user and candidate together: their sums of vectors are added,
    and what is taken off for each vector with itself is added up.
    """
    sums, alone = [], []
    for side in split.sides:
        vectors, dense = side.inputs.embedding, side.inputs.dense
        total = tf.reduce_sum(vectors, 1)
        squares = tf.reduce_sum(vectors * vectors, [1, 2])[:, None]
        if dense_vectors is not None:
            own = tf.gather(dense_vectors, side.dense)
            total += tf.matmul(dense, own)
            squares += tf.matmul(dense * dense, tf.reduce_sum(own * own, 1, keepdims=True))
        sums.append(total)
        alone.append(squares)
    total = split.added(*sums)
    return 0.5 * (tf.reduce_sum(total * total, 1, keepdims=True) - split.added(*alone))
