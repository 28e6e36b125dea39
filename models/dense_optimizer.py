"""The optimizer of dense layers: gradients summed over replicas, then the same step on each replica's copy.

Its arithmetic is that of the tables' optimizers (`update_rules`). Keras's own optimizers would keep the learning
rate, the step and the slots to themselves, where schedules and checkpoints cannot reach them by name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import tensorflow as tf

from models.config import OptimizerSpec
from models.replicas import Replicas
from models.update_rules import SLOTS, initial_slot, rate_of, regularised, update

__all__ = ["DenseOptimizer"]


class DenseOptimizer:
    """State and updates of the dense weights, by weight name."""

    def __init__(self, spec: OptimizerSpec, weights: Mapping[str, tf.Variable], *, replicas: Replicas) -> None:
        self._spec = spec
        self._weights = dict(weights)
        self._replicas = replicas
        self.slots: dict[str, dict[str, tf.Variable]] = {
            slot: {name: self._create(slot, weight) for name, weight in weights.items()} for slot in SLOTS[spec.kind]
        }
        # Biases and the parameters of normalisation are not regularised.
        self._plain = spec.model_copy(update={"l1": 0.0, "l2": 0.0})

    def _create(self, slot: str, weight: tf.Variable) -> tf.Variable:
        with self._replicas.beside(weight):
            first = tf.fill(weight.shape, tf.constant(initial_slot(self._spec, slot), weight.dtype))
            return tf.Variable(first, trainable=False, name=slot)

    def summed(self, gradients: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns each weight's gradient, given this replica's share of it; every replica calls it."""
        names = list(gradients)
        return dict(zip(names, self._replicas.all_sum([gradients[name] for name in names]), strict=True))

    def apply(
        self,
        gradients: Mapping[str, tf.Tensor],
        *,
        step: tf.Tensor,
        scale: tf.Tensor,
        only_if: tf.Tensor | None = None,
    ) -> None:
        """Applies one step.

        Args:
            gradients: what `summed` gave, clipped or not.
            step: int64 scalar, number of updates before this one.
            scale: scalar, multiplies the learning rate.
            only_if: bool scalar, whether to do it at all.
        """
        if not self._replicas.writes():
            return
        updates = [self._of_one(name, gradient, step=step, scale=scale) for name, gradient in gradients.items()]

        def all_of_them() -> tf.Tensor:
            for update_one in updates:
                update_one()
            return tf.constant(0)

        if only_if is None:
            all_of_them()
        else:
            tf.cond(only_if, all_of_them, lambda: tf.constant(0))

    def _of_one(self, name: str, gradient: tf.Tensor, *, step: tf.Tensor, scale: tf.Tensor) -> Callable[[], None]:
        """Returns what updates one weight; found out here, because a branch of a graph does not know its replica."""
        weight = self._replicas.component(self._weights[name])
        slots = {slot: self._replicas.component(variables[name]) for slot, variables in self.slots.items()}
        spec = self._spec if len(weight.shape) > 1 else self._plain
        rule = _fused_adam if spec.kind == "adam" else _by_rule
        return functools.partial(rule, spec, weight, slots=slots, gradient=gradient, step=step, scale=scale)


def _by_rule(
    spec: OptimizerSpec,
    weight: tf.Variable,
    *,
    slots: Mapping[str, tf.Variable],
    gradient: tf.Tensor,
    step: tf.Tensor,
    scale: tf.Tensor,
) -> None:
    with tf.device(weight.device):  # on a parameter server: workers must not bring back each other's old weights
        new_weight, new_slots = update(
            spec,
            tf.convert_to_tensor(weight),
            slots={slot: tf.convert_to_tensor(variable) for slot, variable in slots.items()},
            gradient=gradient,
            scale=scale,
            step=step,
        )
        weight.assign(new_weight)
        for slot, variable in slots.items():
            variable.assign(new_slots[slot])


def _fused_adam(
    spec: OptimizerSpec,
    weight: tf.Variable,
    *,
    slots: Mapping[str, tf.Variable],
    gradient: tf.Tensor,
    step: tf.Tensor,
    scale: tf.Tensor,
) -> None:
    """Adam's rule in one pass: 2.9 CPU ms a step against 7.8 by arithmetic, for 490 thousand weights."""
    t = tf.cast(step + 1, tf.float64)
    tf.raw_ops.ResourceApplyAdam(
        var=weight.handle,
        m=slots["momentum"].handle,
        v=slots["variance"].handle,
        beta1_power=tf.cast(spec.beta_1**t, weight.dtype),
        beta2_power=tf.cast(spec.beta_2**t, weight.dtype),
        lr=rate_of(spec, scale=scale, dtype=weight.dtype),
        beta1=tf.constant(spec.beta_1, weight.dtype),
        beta2=tf.constant(spec.beta_2, weight.dtype),
        epsilon=tf.constant(spec.epsilon, weight.dtype),
        grad=regularised(spec, tf.convert_to_tensor(weight), gradient=gradient),
    )
