"""Loss scaling for float16: gradients too small for it are lifted, and steps whose gradients overflow are skipped.

Micikevicius et al., 2018, "Mixed Precision Training", section 3.2, with a scale that follows the gradients: halved
when they overflow, doubled after a time without. The scale is a power of 2, so that it changes no bit of a number
that is neither lifted out of nor pushed over float16's range.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from models.replicas import Replicas
from models.weights import WeightMaker

__all__ = ["FIRST_SCALE", "GOOD_STEPS", "SCALE", "SKIPPED", "LossScale"]

FIRST_SCALE = 2.0**15
GOOD_STEPS = 2000  # without overflow, before the scale is doubled
LARGEST_SCALE = 2.0**24
SCALE = "loss_scale/scale"
SKIPPED = "loss_scale/skipped_steps"


class LossScale:
    """The scale, steps since it changed, and steps skipped: equal on all replicas, and part of every checkpoint."""

    def __init__(self, make: WeightMaker, replicas: Replicas) -> None:
        self._replicas = replicas
        self._scale = make.statistic(SCALE, (), value=FIRST_SCALE)
        self._good = make.statistic("loss_scale/good_steps", (), value=0.0)
        self._skipped = make.statistic(SKIPPED, (), value=0.0)

    def figures(self) -> dict[str, float]:
        """Returns the scale and how many steps were skipped, from outside of a step."""
        return {"loss_scale": float(self._scale.numpy()), "skipped_steps": float(self._skipped.numpy())}

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        """Returns the loss times the scale, whose gradients `unscaled` sets right."""
        return loss * tf.convert_to_tensor(self._scale)

    def unscaled(self, gradient: tf.Tensor) -> tf.Tensor:
        """Returns the gradient of the loss itself."""
        return gradient / tf.cast(tf.convert_to_tensor(self._scale), gradient.dtype)

    def all_finite(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns whether all numbers of all replicas are finite, bool scalar; every replica calls it."""
        wrong = [tf.reduce_any(~tf.math.is_finite(gradient)) for gradient in gradients]
        (count,) = self._replicas.all_sum([tf.cast(tf.reduce_any(tf.stack(wrong)), self._scale.dtype)])
        return tf.equal(count, 0)

    def exhausted(self, finite: tf.Tensor) -> tf.Tensor:
        """Returns whether gradients are not finite although nothing scales them: no smaller scale will help."""
        return ~finite & (tf.convert_to_tensor(self._scale) <= 1.0)

    def follow(self, finite: tf.Tensor) -> None:
        """Sets scale and counts after a step whose gradients were finite or not."""
        scale, good = tf.convert_to_tensor(self._scale), tf.convert_to_tensor(self._good)
        skipped = tf.convert_to_tensor(self._skipped)
        grows = finite & (good + 1.0 >= GOOD_STEPS)
        larger = tf.minimum(scale * 2.0, LARGEST_SCALE)
        values = (
            (self._scale, tf.where(grows, larger, tf.where(finite, scale, tf.maximum(scale * 0.5, 1.0)))),
            (self._good, tf.where(finite & ~grows, good + 1.0, 0.0)),
            (self._skipped, tf.where(finite, skipped, skipped + 1.0)),
        )
        for variable, value in values if self._replicas.writes() else ():
            self._replicas.component(variable).assign(value)
