"""Target attention: the paper's formula, on any placement, and what it is for."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from models.attention import TargetAttention
from models.build import NETWORKS, build_model
from models.config import AttentionSpec, OptimizersSpec
from models.replicas import Replicas
from models.weights import WeightMaker
from preprocessing.errors import ConfigError
from tests.models.samples import (
    SCHEMA,
    Batch,
    Stepper,
    largest_difference,
    make_batch,
    make_optimizers,
    make_spec,
    state,
)

Strategies = dict[str, tf.distribute.Strategy | None]
TARGETS = {"targets": {"history": "item"}, "hidden_units": (5,)}
MIXED = {"tables": {"user": "mirrored", "item": "sharded", "tag": "table_wise"}}


def test_it_is_the_sum_of_rows_weighted_by_the_activation_unit() -> None:
    random = np.random.default_rng(1)
    make = WeightMaker(Replicas(None), seed=1, dtype=tf.float64)
    attention = TargetAttention(make, AttentionSpec.model_validate(TARGETS), SCHEMA, width=4)
    for variable in make.trainable.values():
        variable.assign(random.normal(size=variable.shape))
    w = {name.removeprefix("attention/history/"): value.numpy() for name, value in make.trainable.items()}
    rows, pooled = random.normal(size=(3, 7, 4)), random.normal(size=(3, 4, 4))  # user, item, 3 of history, 2 tags
    weights = np.array([[0.5, 0.5, 0, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0.5, 0.5]])
    expected = pooled.copy()
    for b in range(3):
        expected[b, 2] = 0
        for t in range(3):
            if weights[b, t]:
                value, target = rows[b, 2 + t], rows[b, 1]
                hidden = np.concatenate([value, target, value * target]) @ w["0/kernel"] + w["0/bias"]
                hidden = np.where(hidden > 0, hidden, w["0/slope"] * hidden)
                expected[b, 2] += (hidden @ w["out/kernel"] + w["out/bias"]) * value
    found = attention(*map(tf.constant, (pooled, rows, weights)), compute_dtype=tf.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert (np.asarray(found)[2, 2] == 0).all()  # an empty history


@pytest.mark.parametrize("network", ["deepfm", *(pytest.param(k, marks=pytest.mark.slow) for k in list(NETWORKS)[1:])])
def test_replicas_with_rows_apart_give_the_weights_of_one(strategies: Strategies, network: str) -> None:
    ends = []
    for strategy in ("none", "mirrored"):
        spec = make_spec(network, attention=TARGETS, embeddings=MIXED)
        optimizers = make_optimizers("adagrad", learning_rate=0.1)
        stepper = Stepper(build_model(SCHEMA, spec, optimizers=optimizers, seed=3, strategy=strategies[strategy]))
        ends.append(([stepper(make_batch(20, seed=i, padded=4)) for i in range(5)], state(stepper.model)))
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=0, atol=1e-9)
    assert largest_difference(ends[1][1], ends[0][1]) < 1e-9
    first = state(build_model(SCHEMA, make_spec(network, attention=TARGETS), optimizers=OptimizersSpec(), seed=3))
    assert (ends[0][1]["attention/history/0/kernel"] != first["attention/history/0/kernel"]).any()


def seen_before(size: int, *, seed: int) -> Batch:
    """Returns a batch whose label is whether the item is in the history, half of the rows each."""
    batch = make_batch(size, seed=seed)
    random = np.random.default_rng(seed)
    item, history = batch["ids"][:, 1], batch["list/history"]
    history[:] = random.integers(1, 17, history.shape)
    item[:] = random.integers(1, 17, size)
    chosen = random.random(size) < 0.5
    item[chosen] = history[chosen, random.integers(0, 3, size)[chosen]]
    batch["labels"] = (history == item[:, None]).any(axis=1, keepdims=True).astype(np.float32)
    batch["weight"] = np.ones_like(batch["weight"])
    return batch


@pytest.mark.slow
def test_where_only_the_match_counts_it_learns_what_the_mean_does_not() -> None:
    losses = {}
    for name, attention in (("mean", {}), ("attention", TARGETS)):
        spec = make_spec("wide_deep", attention=attention, precision="float32", embedding_init_scale=0.3)
        optimizers = make_optimizers("adam", learning_rate=0.01)
        stepper = Stepper(build_model(SCHEMA, spec, optimizers=optimizers, seed=3))
        losses[name] = np.mean([stepper(seen_before(256, seed=i)) for i in range(600)][-50:])
    assert losses["attention"] < 0.8 * losses["mean"]


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"histry": "item"}, "'histry' is no feature that is a list of ids; those are: history, tags"),
        ({"history": "itm"}, "'itm' is no feature that is an id; those are: user, item"),
        ({"history": "user"}, "'history' looks up table 'item' and 'user' table 'user'"),
    ],
)
def test_lists_and_targets_that_do_not_fit_are_refused(targets: dict[str, str], message: str) -> None:
    spec = make_spec("deepfm", attention={"targets": targets})
    with pytest.raises(ConfigError, match=message):
        build_model(SCHEMA, spec, optimizers=OptimizersSpec(), seed=1)
