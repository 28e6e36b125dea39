"""Limits of gradients, before regularisation: by value, by the length of all together, and row by row.

Letters: `U` distinct rows, `D` width.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from models.config import CowClipSpec

__all__ = ["clipped_by_value", "cowclipped", "norm_factor", "sum_of_squares"]


def clipped_by_value(gradient: tf.Tensor, limit: float | None) -> tf.Tensor:
    """Returns the gradient with each number in [-limit, limit]; None: as it is."""
    return gradient if limit is None else tf.clip_by_value(gradient, -limit, limit)


def sum_of_squares(gradients: Sequence[tf.Tensor], *, dtype: tf.DType) -> tf.Tensor:
    """Returns the squared length of all gradients together, a scalar."""
    return tf.add_n([tf.zeros([], dtype), *(tf.reduce_sum(gradient * gradient) for gradient in gradients)])


def norm_factor(squares: tf.Tensor, *, limit: float) -> tf.Tensor:
    """Returns min(1, limit / length), the factor of every gradient; Pascanu et al. (2013), algorithm 1.

    Args:
        squares: scalar, the squared length of all gradients of all replicas.
        limit: the greatest length.
    """
    return limit / tf.maximum(tf.sqrt(squares), tf.constant(limit, squares.dtype))


def cowclipped(spec: CowClipSpec, weights: tf.Tensor, *, gradients: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Returns min(1, c / |g|) g for each row, with c = count * max(r |w|, zeta).

    Zheng et al., 2022, "CowClip: Reducing CTR Prediction Model Training Time from 12 hours to 10 minutes on 1 GPU",
    algorithm 1: a row's bound follows its own length and how often the batch has its id, so rare ids are held back
    as much as frequent ones.

    Args:
        spec: r and zeta.
        weights: float [U, D].
        gradients: float [U, D], of the mean loss of the global batch.
        counts: float [U], positions of the global batch that look a row up.
    """
    bound = counts[:, tf.newaxis] * tf.maximum(spec.r * _lengths(weights), spec.zeta)
    return gradients * tf.math.divide_no_nan(bound, tf.maximum(_lengths(gradients), bound))


def _lengths(rows: tf.Tensor) -> tf.Tensor:
    """Returns [U, 1] of [U, D]."""
    return tf.sqrt(tf.reduce_sum(rows * rows, axis=1, keepdims=True))
