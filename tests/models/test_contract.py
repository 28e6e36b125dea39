"""What every network, under every optimizer and strategy, must hold to.

Compiling a step on two replicas takes seconds, so a network with its compiled step is made once for each
combination and set back to its first state for each test.
"""

import functools
import itertools
from collections.abc import Callable
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
    NUM_USERS,
    SCHEMA,
    Batch,
    Stepper,
    largest_difference,
    make_batch,
    make_optimizers,
    make_spec,
    pad,
    set_state,
    state,
)

Strategies = dict[str, tf.distribute.Strategy | None]
Fresh = Callable[..., Stepper]

NETWORK_KINDS = (*NETWORKS, "tests.models.own_networks:Tower")
# By default each network meets one optimizer; the slow suite has the full product.
PAIRS = list(zip(NETWORK_KINDS, itertools.cycle(("ftrl", "adagrad", "adam")), strict=False))
REST = [pair for pair in itertools.product(NETWORK_KINDS, KINDS) if pair not in PAIRS]
EACH_PAIR = [*PAIRS, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in REST)]
EACH_NETWORK = PAIRS
SIZE = 64


def build(
    network: str, optimizer: str, *, strategy: tf.distribute.Strategy | None = None, seed: int = 3, **settings: object
) -> RankingModel:
    spec = make_spec(network, **{"batch_norm": True, "dropout": 0.25, **settings})
    rate = {"sgd": 0.5, "adagrad": 0.1, "adam": 0.01, "ftrl": 0.1}[optimizer]
    optimizers = make_optimizers(optimizer, learning_rate=rate)
    return build_model(SCHEMA, spec, optimizers=optimizers, seed=seed, strategy=strategy)


@pytest.fixture(scope="module")
def fresh(strategies: Strategies) -> Fresh:
    """Returns a maker of models in their first state, each with its training step."""

    @functools.cache
    def made(network: str, optimizer: str, strategy: str) -> tuple[Stepper, dict[str, np.ndarray]]:
        model = build(network, optimizer, strategy=strategies[strategy])
        return Stepper(model), state(model)

    def maker(network: str, optimizer: str, *, strategy: str = "none") -> Stepper:
        stepper, first = made(network, optimizer, strategy)
        set_state(stepper.model, first)
        stepper.step = 0
        return stepper

    return maker


def tensors(batch: Batch) -> dict[str, tf.Tensor]:
    return {key: tf.constant(value) for key, value in batch.items()}


@pytest.mark.parametrize(("network", "optimizer"), EACH_PAIR)
def test_replicas_give_the_losses_and_weights_of_one(fresh: Fresh, network: str, optimizer: str) -> None:
    batches = [make_batch(SIZE - 4, seed=i, padded=4) for i in range(4)]
    single = fresh(network, optimizer)
    losses = [single(batch) for batch in batches]
    assert len(set(losses)) == len(losses)  # it moves
    pair = fresh(network, optimizer, strategy="mirrored")
    np.testing.assert_allclose([pair(batch) for batch in batches], losses, rtol=0, atol=1e-9)
    assert largest_difference(state(pair.model), state(single.model)) < 1e-9


@pytest.mark.parametrize(
    ("network", "optimizer"), [PAIRS[0], *(pytest.param(*pair, marks=pytest.mark.slow) for pair in PAIRS[1:])]
)
def test_a_strategy_of_one_device_gives_what_none_gives(fresh: Fresh, network: str, optimizer: str) -> None:
    batches = [make_batch(SIZE, seed=i) for i in range(2)]
    plain, one = fresh(network, optimizer), fresh(network, optimizer, strategy="one_device")
    losses = [plain(batch) for batch in batches]
    np.testing.assert_allclose([one(batch) for batch in batches], losses, rtol=0, atol=1e-12)
    assert largest_difference(state(plain.model), state(one.model)) < 1e-12


@pytest.mark.parametrize(("network", "optimizer"), EACH_NETWORK)
def test_both_replicas_hold_the_same_rows(fresh: Fresh, network: str, optimizer: str) -> None:
    stepper = fresh(network, optimizer, strategy="mirrored")
    before = state(stepper.model)
    stepper(make_batch(SIZE, seed=1))
    assert largest_difference(state(stepper.model), before) > 0
    tables: Any = stepper.model.tables
    for (storage,) in tables._storages.values():
        first, second = storage.shards
        for name in first:
            np.testing.assert_array_equal(first[name].numpy(), second[name].numpy())


@pytest.mark.parametrize(("network", "optimizer"), EACH_PAIR)
def test_learns_a_planted_rule(fresh: Fresh, network: str, optimizer: str) -> None:
    stepper = fresh(network, optimizer)
    for i in range(300):
        stepper(make_batch(SIZE, seed=i))
    held_out = make_batch(2000, seed=10**6)
    logits = stepper.model.logits(tensors(held_out)).numpy()
    assert np.mean((logits > 0) == (held_out["labels"] == 1)) > 0.9


@pytest.mark.parametrize(("network", "optimizer"), EACH_PAIR)
def test_padded_rows_change_nothing(fresh: Fresh, network: str, optimizer: str) -> None:
    batches = [make_batch(SIZE - 6, seed=i) for i in range(3)]
    stepper = fresh(network, optimizer)
    losses, plain = [stepper(batch) for batch in batches], state(stepper.model)
    stepper = fresh(network, optimizer)
    np.testing.assert_allclose([stepper(pad(batch, 6)) for batch in batches], losses, rtol=0, atol=1e-10)
    assert largest_difference(state(stepper.model), plain) < 1e-10


@pytest.mark.parametrize(("network", "optimizer"), EACH_PAIR)
def test_padding_does_not_touch_row_0_of_a_table(fresh: Fresh, network: str, optimizer: str) -> None:
    stepper = fresh(network, optimizer)
    stepper(make_batch(SIZE, seed=0))  # row 0 has state now, which an update by a gradient of 0 could act on
    before = state(stepper.model)
    batch = make_batch(SIZE - 6, seed=1)
    batch["ids"] = np.maximum(batch["ids"], 1)
    stepper(pad(batch, 6))
    after = state(stepper.model)
    for array in stepper.model.tables.arrays("embedding"):
        name = f"user/embedding/{array}"
        assert before[name][0].tobytes() == after[name][0].tobytes()
        assert (before[name][1:] != after[name][1:]).any()


@pytest.mark.parametrize(("network", "optimizer"), EACH_NETWORK)
def test_a_batch_of_one_row_trains_and_scores(fresh: Fresh, network: str, optimizer: str) -> None:
    stepper = fresh(network, optimizer)
    assert np.isfinite(stepper(make_batch(1, seed=0)))
    assert stepper.model.logits(tensors(make_batch(1, seed=1))).shape == (1, 1)


@pytest.mark.parametrize(("network", "optimizer"), [pair for pair in PAIRS if pair[1] != "adam"])
def test_a_batch_of_padding_alone_has_loss_zero_and_moves_nothing(fresh: Fresh, network: str, optimizer: str) -> None:
    stepper = fresh(network, optimizer)
    before = state(stepper.model)
    assert stepper(pad(make_batch(0, seed=0), SIZE)) == 0.0
    after = state(stepper.model)
    # FTRL takes its linear term from the weights anew at each step, which then give the same weights.
    moved = {name for name in before if "linear" not in name and not np.allclose(before[name], after[name], 1e-15, 0)}
    assert not moved


@pytest.mark.parametrize(("network", "optimizer"), EACH_NETWORK)
def test_logits_are_float32_and_do_not_depend_on_the_batch(fresh: Fresh, network: str, optimizer: str) -> None:
    stepper = fresh(network, optimizer)
    stepper(make_batch(SIZE, seed=1))  # so that the moving averages are not those of a new model
    batch = tensors(make_batch(9, seed=5))
    together = stepper.model.logits(batch)
    assert together.dtype == tf.float32
    apart = [stepper.model.logits({key: value[i : i + 1] for key, value in batch.items()}).numpy() for i in range(9)]
    np.testing.assert_allclose(together.numpy(), np.concatenate(apart), rtol=0, atol=1e-6)


@pytest.mark.parametrize("network", NETWORK_KINDS)
def test_mixed_precision_trains_near_float32_and_scores_in_float32(network: str) -> None:
    batch = make_batch(64, seed=0)
    full, mixed = (build(network, "adagrad", precision=name) for name in ("float32", "mixed_bfloat16"))
    np.testing.assert_array_equal(full.logits(tensors(batch)), mixed.logits(tensors(batch)))
    step = {"step": tf.constant(0, tf.int64), "learning_rate_scale": tf.constant(1.0)}
    losses = [float(model.train_step(tensors(batch), **step)["loss"]) for model in (full, mixed)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], abs=0.03)
    assert all(variable.dtype == tf.float32 for variable in mixed.dense_variables.values())


@pytest.mark.parametrize(("network", "optimizer"), EACH_NETWORK)
def test_the_seed_alone_decides(fresh: Fresh, network: str, optimizer: str) -> None:
    first = state(fresh(network, optimizer).model)
    assert largest_difference(first, state(build(network, optimizer))) == 0.0
    other = state(build(network, optimizer, seed=4))
    assert (first["user/embedding/weights"] != other["user/embedding/weights"]).all()
    assert (first["head/kernel"] != other["head/kernel"]).all()


@pytest.mark.parametrize(("network", "optimizer"), EACH_NETWORK)
def test_equal_runs_have_equal_bits(fresh: Fresh, network: str, optimizer: str) -> None:
    results = []
    for _ in range(2):
        stepper = fresh(network, optimizer, strategy="mirrored")
        results.append(([stepper(make_batch(SIZE, seed=i)) for i in range(3)], state(stepper.model)))
    assert results[0][0] == results[1][0]
    assert largest_difference(results[0][1], results[1][1]) == 0.0


@pytest.mark.parametrize(("network", "optimizer"), EACH_PAIR)
def test_a_checkpoint_restores_bit_for_bit_at_another_replica_count(
    fresh: Fresh, tmp_path: Path, network: str, optimizer: str
) -> None:
    batches = [make_batch(SIZE, seed=i) for i in range(4)]
    pair = fresh(network, optimizer, strategy="mirrored")
    for batch in batches[:2]:
        pair(batch)
    save_checkpoint(tmp_path / "step-2", pair.model, progress={"step": 2})
    saved = state(pair.model)
    straight = [pair(batch) for batch in batches[2:]]

    single = fresh(network, optimizer)
    single.step = load_checkpoint(tmp_path / "step-2", single.model)["step"]
    for name, values in state(single.model).items():
        assert values.tobytes() == saved[name].tobytes(), name
    np.testing.assert_allclose([single(batch) for batch in batches[2:]], straight, rtol=0, atol=1e-9)

    pair = fresh(network, optimizer, strategy="mirrored")
    pair.step = load_checkpoint(tmp_path / "step-2", pair.model)["step"]
    assert [pair(batch) for batch in batches[2:]] == straight


@pytest.mark.parametrize(("network", "optimizer"), EACH_PAIR)
def test_rows_that_no_one_looked_up_keep_their_bits(fresh: Fresh, network: str, optimizer: str) -> None:
    stepper = fresh(network, optimizer)
    users = np.array([1, 4, 4, 0] * (SIZE // 4))
    before = state(stepper.model)
    for i in range(3):
        batch = make_batch(SIZE, seed=i)
        batch["ids"] = np.stack([users, batch["ids"][:, 1]], 1)
        stepper(batch)
    after = state(stepper.model)
    others = sorted(set(range(NUM_USERS)) - {0, 1, 4})
    for array in stepper.model.tables.arrays("embedding"):
        name = f"user/embedding/{array}"
        assert before[name][others].tobytes() == after[name][others].tobytes()
        assert (before[name][[0, 1, 4]] != after[name][[0, 1, 4]]).all()


@pytest.mark.parametrize(("network", "optimizer"), EACH_PAIR)
def test_the_learning_rate_scale_reaches_every_group(fresh: Fresh, network: str, optimizer: str) -> None:
    stepper = fresh(network, optimizer)
    slots = ("accumulator", "linear", "momentum", "variance")

    def weights() -> dict[str, np.ndarray]:
        return {
            name: values
            for name, values in state(stepper.model).items()
            if not name.startswith(slots) and not name.endswith(slots) and "moving" not in name
        }

    before = weights()
    stepper(make_batch(SIZE, seed=0), scale=1e-12)
    assert largest_difference(weights(), before) < 1e-9
    stepper(make_batch(SIZE, seed=0), scale=1.0)
    after = weights()
    assert all((before[name] != after[name]).any() for name in before)
