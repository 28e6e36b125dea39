"""What one optimizer step does to some weights: plain functions on tensors, for table rows and dense layers alike.

A rule takes weights, slots and gradient of one shape and gives new weights and slots. Letters: `w` weights,
`g` gradient, `a` learning rate, `t` number of this update from 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from models.config import OptimizerSpec
from models.slots import SLOTS

__all__ = ["SLOTS", "initial_slot", "rate_of", "regularised", "update"]

Slots = dict[str, tf.Tensor]
Rule = Callable[[OptimizerSpec, tf.Tensor, Slots, tf.Tensor, "Pace"], tuple[tf.Tensor, Slots]]


@dataclasses.dataclass(frozen=True)
class Pace:
    """`a`, scalar in the dtype of the weights, and `t`, int64 scalar."""

    a: tf.Tensor
    t: tf.Tensor


def initial_slot(spec: OptimizerSpec, name: str) -> float:
    """Returns the first value of every element of a slot."""
    return spec.initial_accumulator if name == "accumulator" else 0.0


def _sgd(spec: OptimizerSpec, w: tf.Tensor, slots: Slots, g: tf.Tensor, pace: Pace) -> tuple[tf.Tensor, Slots]:
    """w - a g."""
    return w - pace.a * g, slots


def _adagrad(spec: OptimizerSpec, w: tf.Tensor, slots: Slots, g: tf.Tensor, pace: Pace) -> tuple[tf.Tensor, Slots]:
    """n' = n + g^2; w - a g / sqrt(n' + epsilon). Duchi et al. (2011)."""
    accumulator = slots["accumulator"] + g * g
    return w - pace.a * g * tf.math.rsqrt(accumulator + spec.epsilon), {"accumulator": accumulator}


def _adam(spec: OptimizerSpec, w: tf.Tensor, slots: Slots, g: tf.Tensor, pace: Pace) -> tuple[tf.Tensor, Slots]:
    """Kingma and Ba (2015), in the form of the end of their section 2; on rows it is the lazy variant.

    Lazy: a row that is not looked up keeps weights and both moments; the bias correction follows the global t.
    """
    t = tf.cast(pace.t, tf.float64)
    correction = tf.sqrt(1.0 - spec.beta_2**t) / (1.0 - spec.beta_1**t)
    momentum = slots["momentum"] + (1.0 - spec.beta_1) * (g - slots["momentum"])
    variance = slots["variance"] + (1.0 - spec.beta_2) * (g * g - slots["variance"])
    move = pace.a * tf.cast(correction, w.dtype) * momentum / (tf.sqrt(variance) + spec.epsilon)
    return w - move, {"momentum": momentum, "variance": variance}


def _ftrl(spec: OptimizerSpec, w: tf.Tensor, slots: Slots, g: tf.Tensor, pace: Pace) -> tuple[tf.Tensor, Slots]:
    """FTRL-Proximal, McMahan et al. (2013), algorithm 1 with beta 0: l1 and l2 are its lambda 1 and 2.

    For w != 0 the paper's z is -w (sqrt(n) / a + l2) - sign(w) l1. It is taken from there instead of the slot:
    so a changed learning rate or a first value that is not 0 does not move the weight by itself.
    """
    accumulator = slots["accumulator"] + g * g
    before = tf.sqrt(slots["accumulator"]) / pace.a
    after = tf.sqrt(accumulator) / pace.a
    linear = tf.where(tf.equal(w, 0.0), slots["linear"], -w * (before + spec.l2) - tf.sign(w) * spec.l1)
    linear = linear + g - (after - before) * w
    shrunk = tf.sign(linear) * tf.maximum(tf.abs(linear) - spec.l1, 0.0)
    return tf.math.divide_no_nan(-shrunk, after + spec.l2), {"accumulator": accumulator, "linear": linear}


_RULES: dict[str, Rule] = {"sgd": _sgd, "adagrad": _adagrad, "adam": _adam, "ftrl": _ftrl}


def regularised(spec: OptimizerSpec, weights: tf.Tensor, *, gradient: tf.Tensor) -> tf.Tensor:
    """Returns the gradient plus `l2 w + l1 sign(w)`; as it is for FTRL, whose rule has both in it."""
    if spec.kind == "ftrl":
        return gradient
    gradient = gradient + spec.l2 * weights if spec.l2 else gradient
    return gradient + spec.l1 * tf.sign(weights) if spec.l1 else gradient


def rate_of(spec: OptimizerSpec, *, scale: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Returns the scaled learning rate."""
    return tf.cast(scale, dtype) * tf.constant(spec.learning_rate, dtype)


def update(
    spec: OptimizerSpec, weights: tf.Tensor, *, slots: Slots, gradient: tf.Tensor, scale: tf.Tensor, step: tf.Tensor
) -> tuple[tf.Tensor, Slots]:
    """Returns new weights and slots.

    Args:
        spec: kind and settings.
        weights: float, any shape.
        slots: one tensor of that shape for each of `SLOTS[spec.kind]`.
        gradient: of that shape, without regularisation; duplicates are summed already.
        scale: scalar, multiplies the learning rate.
        step: int64 scalar, number of updates before this one.
    """
    pace = Pace(rate_of(spec, scale=scale, dtype=weights.dtype), step + 1)
    return _RULES[spec.kind](spec, weights, slots, regularised(spec, weights, gradient=gradient), pace)
