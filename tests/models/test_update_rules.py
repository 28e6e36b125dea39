"""Each optimizer against its formula, written out in numpy for one weight at a time."""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.config import OptimizerSpec
from models.sparse_optimizers import apply_rows, distinct_rows, sum_duplicates
from models.update_rules import SLOTS, initial_slot, update

Floats = NDArray[np.float64]


def regularised(spec: OptimizerSpec, w: float, g: float) -> float:
    return g + spec.l2 * w + spec.l1 * float(np.sign(w))


def reference(spec: OptimizerSpec, w: float, gradients: list[float], *, scale: float = 1.0) -> float:
    """Returns one weight after some updates; FTRL as McMahan et al. (2013) write it, with z kept."""
    a = spec.learning_rate * scale
    n, m, v = spec.initial_accumulator, 0.0, 0.0
    z = -w * (math.sqrt(n) / a + spec.l2) - float(np.sign(w)) * spec.l1
    for t, g in enumerate(gradients, start=1):
        if spec.kind == "ftrl":
            sigma = (math.sqrt(n + g * g) - math.sqrt(n)) / a
            z, n = z + g - sigma * w, n + g * g
            inside = abs(z) <= spec.l1
            w = 0.0 if inside else -(z - float(np.sign(z)) * spec.l1) / (math.sqrt(n) / a + spec.l2)
            continue
        g = regularised(spec, w, g)  # noqa: PLW2901
        if spec.kind == "sgd":
            w -= a * g
        elif spec.kind == "adagrad":
            n += g * g
            w -= a * g / math.sqrt(n + spec.epsilon)
        else:
            m, v = spec.beta_1 * m + (1 - spec.beta_1) * g, spec.beta_2 * v + (1 - spec.beta_2) * g * g
            rate = a * math.sqrt(1 - spec.beta_2**t) / (1 - spec.beta_1**t)
            w -= rate * m / (math.sqrt(v) + spec.epsilon)
    return w


def ours(spec: OptimizerSpec, w: float, gradients: list[float], *, scale: float = 1.0) -> float:
    weight = tf.constant([w], tf.float64)
    slots = {name: tf.constant([initial_slot(spec, name)], tf.float64) for name in SLOTS[spec.kind]}
    for step, g in enumerate(gradients):
        weight, slots = update(
            spec,
            weight,
            slots=slots,
            gradient=tf.constant([g], tf.float64),
            scale=tf.constant(scale),
            step=tf.constant(step, tf.int64),
        )
    return float(weight[0])


@pytest.mark.parametrize("kind", list(SLOTS))
@settings(max_examples=40, deadline=None)
@given(
    # TensorFlow takes subnormal numbers for 0, which the formula does not.
    w=st.floats(-2, 2, allow_subnormal=False),
    gradients=st.lists(st.floats(-5, 5, allow_subnormal=False), min_size=1, max_size=5),
    penalty=st.sampled_from([(0.0, 0.0), (0.3, 0.0), (0.0, 0.2), (0.3, 0.2)]),
    scale=st.sampled_from([1.0, 0.125]),
)
def test_an_update_equals_its_formula(
    kind: str, w: float, gradients: list[float], penalty: tuple[float, float], scale: float
) -> None:
    spec = OptimizerSpec.model_validate({"kind": kind, "learning_rate": 0.1, "l1": penalty[0], "l2": penalty[1]})
    assert ours(spec, w, gradients, scale=scale) == pytest.approx(
        reference(spec, w, gradients, scale=scale), rel=1e-9, abs=1e-12
    )


def test_ftrl_sets_weights_to_exactly_zero_and_lets_them_return() -> None:
    spec = OptimizerSpec(kind="ftrl", learning_rate=0.1, l1=1.0)
    assert ours(spec, 0.0, [0.9]) == 0.0
    # z = -2.5, n = 0.1 + 6.25: w = 1.5 * 0.1 / sqrt(6.35)
    assert ours(spec, 0.0, [-2.5]) == pytest.approx(1.5 * 0.1 / math.sqrt(6.35))
    assert ours(spec, 0.0, [0.9, 0.9]) != 0.0  # z is kept while the weight is 0


def test_a_changed_learning_rate_alone_does_not_move_an_ftrl_weight() -> None:
    spec = OptimizerSpec(kind="ftrl", learning_rate=0.1, l1=0.2, l2=0.1)
    slots = {"accumulator": tf.constant([4.0], tf.float64), "linear": tf.constant([-7.0], tf.float64)}
    arguments = {"slots": slots, "gradient": tf.zeros([1], tf.float64), "step": tf.constant(9, tf.int64)}
    weight, _ = update(spec, tf.constant([0.5], tf.float64), scale=tf.constant(0.01), **arguments)
    assert float(weight[0]) == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("kind", list(SLOTS))
def test_only_the_rows_given_change_and_duplicates_are_summed(kind: str) -> None:
    random = np.random.default_rng(0)
    first, looked_up = random.normal(size=(9, 3)), np.array([7, 2, 7, 7, 0])
    gradients = random.normal(size=(5, 3))
    spec = OptimizerSpec.model_validate({"kind": kind, "learning_rate": 0.1})
    variable = tf.Variable(first)
    slots = {name: tf.Variable(np.full((9, 3), initial_slot(spec, name))) for name in SLOTS[kind]}
    starts = {name: slot.numpy() for name, slot in slots.items()}
    distinct = distinct_rows(tf.constant(looked_up))
    apply_rows(
        spec,
        variable,
        slots=slots,
        rows=distinct.rows,
        gradients=sum_duplicates(tf.constant(gradients), distinct),
        scale=tf.constant(1.0),
        step=tf.constant(0, tf.int64),
    )
    others = [1, 3, 4, 5, 6, 8]
    assert variable.numpy()[others].tobytes() == first[others].tobytes()
    for name, slot in slots.items():
        assert slot.numpy()[others].tobytes() == starts[name][others].tobytes()
    for row in (0, 2, 7):
        total = gradients[looked_up == row].sum(0)
        for column in range(3):
            expected = reference(spec, first[row, column], [total[column]])
            assert variable.numpy()[row, column] == pytest.approx(expected, rel=1e-9)


@given(rows=st.lists(st.integers(0, 5), min_size=1, max_size=30))
@settings(max_examples=30, deadline=None)
def test_summing_duplicates_loses_and_invents_nothing(rows: list[int]) -> None:
    gradients = np.arange(1.0, 2 * len(rows) + 1).reshape(-1, 2)
    distinct = distinct_rows(tf.constant(rows))
    summed = sum_duplicates(tf.constant(gradients), distinct).numpy()
    assert sorted(set(rows)) == sorted(distinct.rows.numpy().tolist())
    for row, total in zip(distinct.rows.numpy(), summed, strict=True):
        np.testing.assert_allclose(total, gradients[np.array(rows) == row].sum(0))
