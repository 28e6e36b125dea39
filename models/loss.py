"""The loss: weighted binary cross entropy over the global batch, divided by the global weight."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

__all__ = ["loss_share", "sampling_offset"]


def sampling_offset(negative_keep: float) -> float:
    """Returns what log-odds gain where only this share of the negatives is kept: -ln(keep), 0 for all.

    P(row | negative) shrinks by `keep`, so sampled odds are p / ((1 - p) keep): equation 4 of He et al., 2014,
    "Practical Lessons from Predicting Clicks on Ads at Facebook", solved for the sampled q. Added to the logits in the
    training loss only, it leaves the logits themselves those of the full data.
    """
    return -math.log(negative_keep)


def loss_share(
    logits: tf.Tensor,
    labels: tf.Tensor,
    *,
    weight: tf.Tensor,
    global_weight: tf.Tensor,
    label_weights: Sequence[float],
) -> tf.Tensor:
    """Returns this replica's share of the loss, a scalar: the shares of all replicas sum to the weighted mean.

    A row of weight 0 adds nothing; a global batch of such rows has loss 0.

    Args:
        logits: [B, K].
        labels: [B, K], 0 or 1.
        weight: [B, 1].
        global_weight: scalar, sum of the weights of all replicas.
        label_weights: K numbers; the mean over labels is taken by them.
    """
    per_label = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    shares = np.array(label_weights) / np.sum(label_weights)
    per_row = tf.reduce_sum(per_label * tf.constant(shares, per_label.dtype), axis=1, keepdims=True)
    return tf.math.divide_no_nan(tf.reduce_sum(per_row * weight), global_weight)
