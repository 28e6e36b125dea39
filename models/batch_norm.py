"""Batch normalisation over the global batch, in which padded rows do not count. Ioffe and Szegedy (2015)."""

from __future__ import annotations

import tensorflow as tf

from models.mode import Mode, Training
from models.weights import WeightMaker

__all__ = ["BatchNorm"]

# A moving average over some ten batches: at a few dozen large batches an epoch, 0.99 would still be at its start.
MOMENTUM = 0.9
EPSILON = 1e-3


class BatchNorm:
    """Normalises [B, U] by the moments of the live rows of all replicas; by moving averages in inference."""

    def __init__(self, make: WeightMaker, name: str, *, width: int) -> None:
        self._gamma = make.constant(f"{name}/gamma", (width,), value=1.0)
        self._beta = make.constant(f"{name}/beta", (width,))
        self._mean = make.statistic(f"{name}/moving_mean", (width,), value=0.0)
        self._variance = make.statistic(f"{name}/moving_variance", (width,), value=1.0)

    def __call__(self, x: tf.Tensor, mode: Mode) -> tf.Tensor:
        """Returns `x` normalised, in its own dtype; the arithmetic is in the dtype of the weights."""
        wide = tf.cast(x, self._gamma.dtype)
        if mode.training is None:
            mean, variance = tf.convert_to_tensor(self._mean), tf.convert_to_tensor(self._variance)
        else:
            mean, variance = self._moments(wide, mode.training)
        scale = self._gamma * tf.math.rsqrt(variance + EPSILON)
        return tf.cast(wide * scale + (self._beta - mean * scale), x.dtype)

    def _moments(self, x: tf.Tensor, training: Training) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns mean and variance [U], after moving the averages towards them.

        Sums of x - c and (x - c)^2, with the moving mean as c, need one exchange and do not cancel as those of x
        and x^2 do.
        """
        centre = tf.convert_to_tensor(self._mean)
        live = tf.cast(training.live, x.dtype)
        apart = (x - centre) * live
        sums = tf.concat([tf.reduce_sum(apart, 0), tf.reduce_sum(apart * apart, 0), tf.reduce_sum(live, 0)], 0)
        (sums,) = training.replicas.all_sum([sums])
        width = int(x.shape[1])
        count = tf.maximum(sums[-1], 1.0)
        offset = sums[:width] / count
        mean, variance = centre + offset, tf.maximum(sums[width:-1] / count - offset * offset, 0.0)
        # A batch of padding alone has no moments: the averages stay.
        pull = tf.where(sums[-1] > 0, tf.constant(1.0 - MOMENTUM, x.dtype), 0.0)
        averages = ((self._mean, mean), (self._variance, variance)) if training.replicas.writes() else ()
        for average, value in averages:
            component = training.replicas.component(average)
            component.assign_add(pull * (value - component))
        return mean, variance
