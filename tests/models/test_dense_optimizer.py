"""The dense optimizer: the rules' arithmetic, whatever kernel does it, and what is regularised."""

import numpy as np
import pytest
import tensorflow as tf

from models.config import OptimizerSpec
from models.dense_optimizer import DenseOptimizer
from models.replicas import Replicas
from models.update_rules import SLOTS, initial_slot, update

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("kind", list(SLOTS))
def test_three_steps_equal_three_applications_of_the_rule(kind: str) -> None:
    spec = OptimizerSpec.model_validate({"kind": kind, "learning_rate": 0.1, "l1": 0.02, "l2": 0.3})
    weight = tf.Variable(RANDOM.normal(size=(4, 3)))
    optimizer = DenseOptimizer(spec, {"kernel": weight}, replicas=Replicas())
    expected = tf.convert_to_tensor(weight)
    slots = {name: tf.fill([4, 3], tf.constant(initial_slot(spec, name), tf.float64)) for name in SLOTS[kind]}
    for step in range(3):
        gradient = tf.constant(RANDOM.normal(size=(4, 3)))
        arguments = {"step": tf.constant(step, tf.int64), "scale": tf.constant(0.5)}
        optimizer.apply({"kernel": gradient}, **arguments)
        expected, slots = update(spec, expected, slots=slots, gradient=gradient, **arguments)
    np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-9)
    for name, value in slots.items():
        np.testing.assert_allclose(optimizer.slots[name]["kernel"].numpy(), value, rtol=1e-9)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_biases_are_not_regularised(kind: str) -> None:
    spec = OptimizerSpec.model_validate({"kind": kind, "learning_rate": 0.1, "l2": 0.5})
    weights = {"kernel": tf.Variable(np.ones((2, 2))), "bias": tf.Variable(np.ones(2))}
    optimizer = DenseOptimizer(spec, weights, replicas=Replicas())
    zeros = {name: tf.zeros_like(weight) for name, weight in weights.items()}
    optimizer.apply(zeros, step=tf.constant(0, tf.int64), scale=tf.constant(1.0))
    np.testing.assert_array_equal(weights["bias"].numpy(), np.ones(2))
    assert (weights["kernel"].numpy() < 1).all()
