"""Positions: whatever is scored has one or none, on any placement; and what the logs' order hides comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models.build import NETWORKS, build_inference_model, build_model
from models.config import OptimizersSpec
from models.ranking_model import RankingModel
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
KINDS: dict[str, dict[str, Any]] = {
    "fixed": {"feature": "user", "kind": "fixed", "value": 1},
    "tower": {"feature": "user", "kind": "tower", "hidden_units": (5,)},
}
MIXED = {"tables": {"user": "mirrored", "item": "sharded", "tag": "table_wise"}}


def logits(model: RankingModel, batch: Batch) -> np.ndarray:
    return np.asarray(model.logits({key: tf.constant(value) for key, value in batch.items()}))


def at_position(batch: Batch, position: int) -> Batch:
    ids = batch["ids"].copy()
    ids[:, 0] = position + 2  # 0 is missing, 1 out of range
    return {**batch, "ids": ids}


def trained(network: str, position: dict[str, Any] | None, *, steps: int = 5) -> RankingModel:
    spec = make_spec(network, position=position, embedding_init_scale=0.3)
    optimizers = make_optimizers("adagrad", learning_rate=0.1)
    stepper = Stepper(build_model(SCHEMA, spec, optimizers=optimizers, seed=3))
    for i in range(steps):
        stepper(make_batch(32, seed=i))
    return stepper.model


@pytest.mark.parametrize("network", list(NETWORKS))
@pytest.mark.parametrize("kind", list(KINDS))
def test_no_score_depends_on_where_it_was_shown(network: str, kind: str) -> None:
    model = trained(network, KINDS[kind])
    batch = make_batch(16, seed=9)
    found = logits(model, batch)
    for position in (0, 4):
        np.testing.assert_array_equal(logits(model, at_position(batch, position)), found)
    assert np.ptp(found) > 1e-3


def test_fixed_is_the_same_model_with_that_position_sent() -> None:
    batch = make_batch(16, seed=9)
    plain, fixed = trained("deepfm", None), trained("deepfm", KINDS["fixed"])
    assert largest_difference(state(plain), state(fixed)) == 0.0  # it is trained with like any feature
    np.testing.assert_array_equal(logits(plain, at_position(batch, 1)), logits(fixed, batch))
    assert np.abs(logits(plain, at_position(batch, 4)) - logits(fixed, batch)).max() > 1e-3


@pytest.mark.parametrize("kind", list(KINDS))
def test_replicas_with_rows_apart_give_the_weights_of_one(strategies: Strategies, kind: str) -> None:
    ends = []
    for strategy in ("none", "mirrored"):
        spec = make_spec("deepfm", position=KINDS[kind], embeddings=MIXED)
        optimizers = make_optimizers("adagrad", learning_rate=0.1)
        stepper = Stepper(build_model(SCHEMA, spec, optimizers=optimizers, seed=3, strategy=strategies[strategy]))
        ends.append(([stepper(make_batch(20, seed=i, padded=4)) for i in range(4)], state(stepper.model)))
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=0, atol=1e-9)
    assert largest_difference(ends[1][1], ends[0][1]) < 1e-9


RELEVANCE = np.linspace(0.05, 0.9, 15)  # of items 2 to 16


def shown_in_order(size: int, *, seed: int) -> Batch:
    """Returns impressions of which the less relevant ones are shown higher, and clicked if looked at and relevant."""
    batch, random = make_batch(size, seed=seed), np.random.default_rng(seed)
    item = random.integers(0, 15, size)
    position = np.clip(np.round(item / 2 + random.normal(scale=1.0, size=size)), 0, 9).astype(np.int64)
    looked_at = 1 / (1 + position)
    batch["ids"] = np.stack([position + 2, item + 2], axis=1)
    batch["labels"] = (random.random(size) < looked_at * RELEVANCE[item]).astype(np.float32)[:, None]
    batch["list/history"][:], batch["list/tags"][:], batch["dense"][:] = 0, 0, 0
    batch["weight"] = np.ones_like(batch["weight"])
    return batch


@pytest.mark.slow
def test_relevance_is_found_below_the_order_of_the_logs() -> None:
    items = make_batch(15, seed=1)
    items["ids"] = np.stack([np.full(15, 2), np.arange(2, 17)], axis=1)
    items["list/history"][:], items["list/tags"][:], items["dense"][:] = 0, 0, 0
    agreement = {}
    for name, position in (("none", None), *KINDS.items()):
        schema = SCHEMA if position else SCHEMA.model_copy(update={"id_fields": SCHEMA.id_fields[1:]})
        spec = make_spec("wide_deep", position=position, precision="float32", hidden_units=(8,))
        optimizers = make_optimizers("adam", learning_rate=0.01)
        model = build_model(schema, spec, optimizers=optimizers, seed=3)
        step = tf.function(model.train_step, autograph=False, reduce_retracing=True)
        for i in range(600):
            batch = shown_in_order(512, seed=i)
            batch["ids"] = batch["ids"] if position else batch["ids"][:, 1:]
            step(
                {key: tf.constant(value) for key, value in batch.items()},
                step=tf.constant(i, tf.int64),
                learning_rate_scale=tf.constant(1.0),
            )
        asked = items if position else {**items, "ids": items["ids"][:, 1:]}
        agreement[name] = np.corrcoef(np.argsort(np.argsort(logits(model, asked)[:, 0])), np.arange(15))[0, 1]
    assert agreement["fixed"] > 0.9
    assert agreement["tower"] > 0.9
    assert agreement["none"] < 0.5


def test_an_exported_model_needs_no_tower_to_score() -> None:
    model = build_inference_model(SCHEMA, make_spec("deepfm", position=KINDS["tower"]))
    batch = make_batch(8, seed=1)
    np.testing.assert_array_equal(logits(model, batch), logits(model, at_position(batch, 3)))


@pytest.mark.parametrize(
    ("position", "message"),
    [
        ({"feature": "usr"}, "model.position.feature: no feature 'usr' with one id"),
        ({"feature": "user", "value": 11}, "model.position.value: 'user' has values 0 to 10, not 11"),
    ],
)
def test_a_position_that_is_not_there_is_refused(position: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model(SCHEMA, make_spec("deepfm", position=position), optimizers=OptimizersSpec(), seed=1)
