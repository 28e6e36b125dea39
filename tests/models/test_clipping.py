"""Limits of gradients, each against its definition in numpy: alone, and by what one step of SGD does to a model."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError

from models.build import build_model
from models.clipping import clipped_by_value, cowclipped, norm_factor, sum_of_squares
from models.config import ClippingSpec, CowClipSpec, OptimizerSpec, OptimizersSpec
from models.ranking_model import RankingModel
from tests.models.samples import SCHEMA, Stepper, make_batch, make_spec, state

Floats = NDArray[np.floating]
Strategies = dict[str, tf.distribute.Strategy | None]
RATE, L2 = 0.5, 0.25
SLOW_ALONE = pytest.param("none", marks=pytest.mark.slow)
MIXED = {"tables": {"user": "mirrored", "item": "sharded", "tag": "table_wise"}}
# User and item of one id field each, the item again in a list; in lists id 0 is padding.
READERS = {"user": (("ids", 0),), "item": (("ids", 1), ("list/history", None)), "tag": (("list/tags", None),)}


def cowclip_reference(w: Floats, g: Floats, counts: Floats, *, r: float, zeta: float) -> Floats:
    """Algorithm 1 of Zheng et al. (2022), a row at a time."""
    clipped = g.copy()
    for row in range(len(g)):
        bound = counts[row] * max(r * np.linalg.norm(w[row]), zeta)
        length = np.linalg.norm(g[row])
        if length > bound:
            clipped[row] = g[row] * bound / length
    return clipped


@given(
    seed=st.integers(0, 2**32 - 1),
    r=st.sampled_from([1e-3, 0.5, 1.0, 10.0]),
    zeta=st.sampled_from([0.0, 1e-5, 1.0]),
    zero=st.sampled_from(["w", "g", "neither"]),
)
@settings(max_examples=40, deadline=None)
def test_cowclip_is_its_definition(seed: int, r: float, zeta: float, zero: str) -> None:
    random = np.random.default_rng(seed)
    w, g = random.normal(size=(5, 3)), random.normal(size=(5, 3)) * 10.0 ** random.integers(-3, 4, (5, 1))
    if zero != "neither":
        (w if zero == "w" else g)[2] = 0.0
    counts = random.integers(1, 6, 5).astype(float)
    found = cowclipped(
        CowClipSpec(r=r, zeta=zeta), tf.constant(w), gradients=tf.constant(g), counts=tf.constant(counts)
    )
    np.testing.assert_allclose(found, cowclip_reference(w, g, counts, r=r, zeta=zeta), rtol=1e-12)


def test_a_gradient_within_its_bound_keeps_its_bits() -> None:
    g = np.random.default_rng(0).normal(size=(4, 3))
    found = cowclipped(
        CowClipSpec(r=1e6), tf.ones([4, 3], tf.float64), gradients=tf.constant(g), counts=tf.ones([4], tf.float64)
    )
    assert found.numpy().tobytes() == g.tobytes()


def test_values_are_clipped_on_both_sides() -> None:
    np.testing.assert_array_equal(clipped_by_value(tf.constant([-3.0, 0.5, 2.0]), 1.0), [-1.0, 0.5, 1.0])
    np.testing.assert_array_equal(clipped_by_value(tf.constant([-3.0]), None), [-3.0])


@pytest.mark.parametrize(("limit", "factor"), [(2.5, 0.5), (5.0, 1.0), (80.0, 1.0)])
def test_the_norm_is_of_all_gradients_together(limit: float, factor: float) -> None:
    squares = sum_of_squares([tf.constant([3.0]), tf.constant([[4.0], [0.0]])], dtype=tf.float32)
    assert float(norm_factor(squares, limit=limit)) == factor
    assert float(norm_factor(tf.constant(0.0), limit=limit)) == 1.0


def built(strategy: tf.distribute.Strategy | None, rows: OptimizerSpec, clipping: ClippingSpec) -> RankingModel:
    dense = OptimizerSpec(kind="sgd", learning_rate=RATE)
    optimizers = OptimizersSpec(tables=rows, wide=rows, dense=dense, clipping=clipping)
    spec = make_spec("deepfm", embedding_init_scale=0.3, embeddings=MIXED)
    return build_model(SCHEMA, spec, optimizers=optimizers, seed=3, strategy=strategy)


def moves(
    strategy: tf.distribute.Strategy | None = None, clipping: ClippingSpec | None = None, **options: Any
) -> dict[str, Floats]:
    """Returns (before - after) / rate of each weight: what one step of SGD was given, clipped and regularised."""
    rows = OptimizerSpec(kind="sgd", learning_rate=RATE, **options)
    model = built(strategy, rows, clipping or ClippingSpec())
    before = state(model)
    Stepper(model)(make_batch(24, seed=5))
    return {name: (before[name] - value) / RATE for name, value in state(model).items()}


@pytest.fixture(scope="module")
def gradients() -> dict[str, Floats]:
    return moves()


def counted(table: str, num_rows: int) -> Floats:
    batch, counts = make_batch(24, seed=5), np.zeros(num_rows)
    for key, column in READERS[table]:
        ids = batch[key] if column is None else batch[key][:, column]
        found = np.bincount(ids.reshape(-1), minlength=num_rows).astype(float)
        found[0] *= column is not None
        counts += found
    return counts


@pytest.mark.parametrize("strategy", [SLOW_ALONE, "mirrored"])
def test_cowclip_counts_ids_of_the_global_batch_and_leaves_decay_alone(
    strategies: Strategies, gradients: dict[str, Floats], strategy: str
) -> None:
    r, zeta = 0.003, 1e-4
    found = moves(strategies[strategy], cowclip={"r": r, "zeta": zeta}, l2=L2)
    first = state(built(None, OptimizerSpec(kind="sgd", learning_rate=RATE), ClippingSpec()))
    changed = 0
    for table in SCHEMA.tables:
        counts = counted(table.name, table.num_rows)
        for group in ("embedding", "first_order"):
            name = f"{table.name}/{group}/weights"
            clipped = cowclip_reference(first[name], gradients[name], counts, r=r, zeta=zeta)
            changed += int((np.abs(clipped - gradients[name]).max(axis=1) > 1e-9).sum())
            looked_up = counts > 0
            expected = (clipped + L2 * first[name]) * looked_up[:, None]
            np.testing.assert_allclose(found[name], expected, atol=1e-12)
    assert changed > 5
    np.testing.assert_allclose(found["mlp/0/kernel"], gradients["mlp/0/kernel"], atol=1e-12)


@pytest.mark.parametrize(
    ("strategy", "include"),
    [("none", False), pytest.param("none", True, marks=pytest.mark.slow), ("mirrored", True)],
)
def test_all_gradients_of_a_step_are_scaled_to_one_length(
    strategies: Strategies, gradients: dict[str, Floats], strategy: str, include: bool
) -> None:
    limit = 0.01
    clipped = moves(strategies[strategy], ClippingSpec(global_norm=limit, include_tables=include))
    together = {name for name in gradients if include or not name.endswith("/weights")}
    length = np.sqrt(sum((gradients[name] ** 2).sum() for name in together))
    assert length > 2 * limit
    for name, gradient in gradients.items():
        factor = limit / length if name in together else 1.0
        np.testing.assert_allclose(clipped[name], gradient * factor, atol=1e-12)


@pytest.mark.slow
def test_numbers_are_clipped_before_the_length(gradients: dict[str, Floats]) -> None:
    value, limit = 0.002, 0.005
    found = moves(None, ClippingSpec(value=value, global_norm=limit, include_tables=True))
    clipped = {name: np.clip(gradient, -value, value) for name, gradient in gradients.items()}
    length = np.sqrt(sum((gradient**2).sum() for gradient in clipped.values()))
    assert length > limit
    for name, gradient in clipped.items():
        np.testing.assert_allclose(found[name], gradient * limit / length, atol=1e-12)


def test_dense_weights_have_no_cowclip() -> None:
    with pytest.raises(ValidationError, match="cowclip is for rows of tables"):
        OptimizersSpec(dense=OptimizerSpec(kind="sgd", learning_rate=1.0, cowclip=CowClipSpec()))
