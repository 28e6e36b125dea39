"""The loss: weighted binary cross entropy over the global batch, divided by the global weight."""

from __future__ import annotations

import math

import tensorflow as tf

__all__ = ["loss_share", "sampling_offset"]


def sampling_offset(negative_keep: float) -> float:
    """Returns what log-odds gain where only this share of the negatives is kept: -ln(keep), 0 for all.

    P(row | negative) shrinks by `keep`, so sampled odds are p / ((1 - p) keep): equation 4 of He et al., 2014,
    "Practical Lessons from Predicting Clicks on Ads at Facebook", solved for the sampled q. Added to the logits in the
    training loss only, it leaves the logits themselves those of the full data.
    """
    return -math.log(negative_keep)


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
