"""What every network, under every optimizer and strategy, must hold to."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models.build import NETWORKS, build_model
from models.checkpoint import load_checkpoint, save_checkpoint
from models.ranking_model import RankingModel
from tests.models.samples import (
    KINDS,
    SCHEMA,
    Stepper,
    largest_difference,
    make_batch,
    make_optimizers,
    make_spec,
    pad,
    run,
    state,
)

Strategies = dict[str, tf.distribute.Strategy | None]

NETWORK_KINDS = tuple(NETWORKS)
# Every network meets every optimizer once under each distribution in the slow suite, pairwise by default.
PAIRS = [(NETWORK_KINDS[i % len(NETWORK_KINDS)], kind) for i, kind in enumerate(KINDS)]
ALL = [pair for pair in itertools.product(NETWORK_KINDS, KINDS) if pair not in PAIRS]
CASES = [*PAIRS, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ALL)]


def build(
    network: str, optimizer: str, *, strategy: tf.distribute.Strategy | None = None, seed: int = 3, **settings: object
) -> RankingModel:
    return build_model(
        SCHEMA, make_spec(network, **settings), optimizers=make_optimizers(optimizer), seed=seed, strategy=strategy
    )


@pytest.mark.parametrize(("network", "optimizer"), CASES)
def test_replicas_give_the_losses_and_weights_of_one(strategies: Strategies, network: str, optimizer: str) -> None:
    batches = [make_batch(12, seed=i, padded=4) for i in range(4)]
    settings: dict[str, Any] = {"batch_norm": True, "dropout": 0.25}
    single = build(network, optimizer, **settings)
    losses, weights = run(single, batches), state(single)
    for name in ("one_device", "mirrored"):
        model = build(network, optimizer, strategy=strategies[name], **settings)
        np.testing.assert_allclose(run(model, batches), losses, rtol=0, atol=1e-9, err_msg=name)
        assert largest_difference(state(model), weights) < 1e-9, name
    assert len(set(losses)) == len(losses)  # it moves


@pytest.mark.parametrize("network", NETWORK_KINDS)
def test_both_replicas_hold_the_same_rows(strategies: Strategies, network: str) -> None:
    model = build(network, "adagrad", strategy=strategies["mirrored"])
    before = state(model)
    run(model, [make_batch(8, seed=1)])
    assert largest_difference(state(model), before) > 0
    for storage in model.tables._storages.values():
        first, second = storage.copies
        for name in first:
            np.testing.assert_array_equal(first[name].numpy(), second[name].numpy())


@pytest.mark.parametrize(("network", "optimizer"), CASES)
def test_learns_a_planted_rule(network: str, optimizer: str) -> None:
    rate = {"sgd": 0.5, "adagrad": 0.2, "adam": 0.02, "ftrl": 0.2}[optimizer]
    spec = make_spec(network, precision="float32", embedding_init_scale=0.3)
    model = build_model(SCHEMA, spec, optimizers=make_optimizers(optimizer, learning_rate=rate), seed=3)
    stepper = Stepper(model)
    for i in range(250):
        stepper(make_batch(256, seed=i))
    held_out = make_batch(2000, seed=10**6)
    logits = model.logits({key: tf.constant(value) for key, value in held_out.items()}).numpy()
    assert np.mean((logits > 0) == (held_out["labels"] == 1)) > 0.9


@pytest.mark.parametrize(("network", "optimizer"), CASES)
def test_padded_rows_change_nothing(network: str, optimizer: str) -> None:
    batches = [make_batch(10, seed=i) for i in range(3)]
    settings: dict[str, Any] = {"batch_norm": True}
    plain, padded = build(network, optimizer, **settings), build(network, optimizer, **settings)
    losses = run(plain, batches)
    np.testing.assert_allclose(run(padded, [pad(batch, 6) for batch in batches]), losses, rtol=0, atol=1e-12)
    assert largest_difference(state(padded), state(plain)) < 1e-12


@pytest.mark.parametrize("network", NETWORK_KINDS)
def test_a_batch_of_one_row_trains_and_scores(network: str) -> None:
    model = build(network, "adam", batch_norm=True)
    assert np.isfinite(run(model, [make_batch(1, seed=0)])).all()
    batch = {key: tf.constant(value) for key, value in make_batch(1, seed=1).items()}
    assert model.logits(batch).shape == (1, 1)


@pytest.mark.parametrize("network", NETWORK_KINDS)
def test_a_batch_of_padding_alone_has_loss_zero_and_moves_no_statistic(network: str) -> None:
    model = build(network, "adagrad", batch_norm=True)
    before = state(model)
    assert run(model, [pad(make_batch(0, seed=0), 4)]) == [0.0]
    assert largest_difference(state(model), before) == 0.0


@pytest.mark.parametrize("network", NETWORK_KINDS)
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16", "float64"])
def test_logits_are_float32_and_do_not_depend_on_the_batch(network: str, precision: str) -> None:
    model = build(network, "adagrad", precision=precision, dropout=0.5, batch_norm=True)
    losses = run(model, [make_batch(16, seed=i) for i in range(2)])
    assert np.isfinite(losses).all()
    batch = {key: tf.constant(value) for key, value in make_batch(9, seed=5).items()}
    together = model.logits(batch)
    assert together.dtype == tf.float32
    apart = [model.logits({key: value[i : i + 1] for key, value in batch.items()}).numpy() for i in range(9)]
    np.testing.assert_allclose(together.numpy(), np.concatenate(apart), rtol=0, atol=1e-5)


@pytest.mark.parametrize("network", NETWORK_KINDS)
def test_the_seed_alone_decides(network: str) -> None:
    batches = [make_batch(16, seed=i) for i in range(2)]
    models = [build(network, "adam", seed=seed, dropout=0.5) for seed in (3, 3, 4)]
    losses = [run(model, batches) for model in models]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]
    assert largest_difference(state(models[0]), state(models[1])) == 0.0


@pytest.mark.parametrize(("network", "optimizer"), CASES)
def test_a_checkpoint_restores_bit_for_bit_at_another_replica_count(
    strategies: Strategies, tmp_path: Path, network: str, optimizer: str
) -> None:
    batches = [make_batch(8, seed=i) for i in range(4)]
    settings: dict[str, Any] = {"batch_norm": True, "dropout": 0.25}
    first = build(network, optimizer, strategy=strategies["mirrored"], **settings)
    stepper = Stepper(first)
    for batch in batches[:2]:
        stepper(batch)
    save_checkpoint(tmp_path / "step-2", first, progress={"step": 2})
    saved = state(first)
    straight = [stepper(batch) for batch in batches[2:]]

    second = build(network, optimizer, seed=99, **settings)
    assert load_checkpoint(tmp_path / "step-2", second) == {"step": 2}
    for name, values in state(second).items():
        assert values.tobytes() == saved[name].tobytes(), name
    resumed = Stepper(second, step=2)
    np.testing.assert_allclose([resumed(batch) for batch in batches[2:]], straight, rtol=0, atol=1e-9)

    third = build(network, optimizer, strategy=strategies["mirrored"], seed=98, **settings)
    load_checkpoint(tmp_path / "step-2", third)
    again = Stepper(third, step=2)
    assert [again(batch) for batch in batches[2:]] == straight


@pytest.mark.parametrize("network", NETWORK_KINDS)
def test_rows_that_no_one_looked_up_keep_their_bits(network: str) -> None:
    model = build(network, "adam")
    batches = [make_batch(3, seed=i) for i in range(3)]
    before = state(model)
    run(model, batches)
    after = state(model)
    users = sorted({int(user) for batch in batches for user in batch["ids"][:, 0]})
    others = sorted(set(range(13)) - set(users))
    assert others
    for array in ("weights", "momentum", "variance"):
        name = f"user/embedding/{array}"
        assert before[name][others].tobytes() == after[name][others].tobytes()
        assert (before[name][users] != after[name][users]).all()


def test_the_learning_rate_scale_reaches_every_group() -> None:
    model = build("deepfm", "adam")
    before = state(model)
    Stepper(model)(make_batch(8, seed=0), scale=0.0)
    after = state(model)
    weights = {name for name in before if not name.startswith(("momentum", "variance"))} & {
        name for name in before if not name.endswith(("momentum", "variance"))
    }
    assert all(before[name].tobytes() == after[name].tobytes() for name in weights)
    assert any((before[name] != after[name]).any() for name in before)
