"""The loss: weighted binary cross entropy over the global batch, divided by the global weight."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["loss_share"]


def loss_share(logits: tf.Tensor, labels: tf.Tensor, *, weight: tf.Tensor, global_weight: tf.Tensor) -> tf.Tensor:
    """Returns this replica's share of the loss, a scalar: the shares of all replicas sum to the weighted mean.

    A row of weight 0 adds nothing; a global batch of such rows has loss 0.

    Args:
        logits: [B, K].
        labels: [B, K], 0 or 1; the mean over labels is taken.
        weight: [B, 1].
        global_weight: scalar, sum of the weights of all replicas.
    """
    per_label = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    per_row = tf.reduce_mean(per_label, axis=1, keepdims=True)
    return tf.math.divide_no_nan(tf.reduce_sum(per_row * weight), global_weight)
