"""Tables on parameter servers, with the devices of this process in their place."""

import numpy as np
import pytest
import tensorflow as tf

from models.build import build_model
from models.checkpoint import load_checkpoint, save_checkpoint
from models.config import ClippingSpec, CowClipSpec, OptimizerSpec, OptimizersSpec
from models.partitioned_tables import ParameterServers, PartitionedTables, num_shards
from models.ranking_model import RankingModel
from tests.models.samples import (
    KINDS,
    NUM_ITEMS,
    NUM_TAGS,
    NUM_USERS,
    SCHEMA,
    largest_difference,
    make_batch,
    make_optimizers,
    make_spec,
    state,
)

DEVICES = ("/cpu:0", "/cpu:1")


def model_on(servers: ParameterServers | None, kind: str = "adagrad", seed: int = 1) -> RankingModel:
    return build_model(SCHEMA, make_spec("deepfm"), optimizers=make_optimizers(kind), seed=seed, servers=servers)


def train(model: RankingModel, steps: int) -> list[float]:
    losses = []
    for step in range(steps):
        batch = {name: tf.constant(value) for name, value in make_batch(16, seed=step, padded=step % 3).items()}
        out = model.train_step(
            batch, step=tf.constant(step, tf.int64), learning_rate_scale=tf.constant(1.0, tf.float64)
        )
        losses.append(float(out["loss"]))
    return losses


def servers(count: int) -> ParameterServers:
    if len(tf.config.list_logical_devices("CPU")) < 2:
        pytest.skip("TensorFlow was initialised with one device before these tests")
    return ParameterServers((DEVICES * 2)[:count], min_shard_bytes=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 3])
def test_they_train_as_whole_tables_do(kind: str, count: int) -> None:
    whole, cut = model_on(None, kind), model_on(servers(count), kind)
    assert isinstance(cut.tables, PartitionedTables)
    assert train(cut, 6) == pytest.approx(train(whole, 6), rel=1e-12)
    for table, rows in (("user", NUM_USERS), ("item", NUM_ITEMS), ("tag", NUM_TAGS)):
        for group in whole.tables.groups:
            for array in whole.tables.arrays(group):
                np.testing.assert_allclose(
                    cut.tables.read(table, group, array=array, ids=range(rows)),
                    whole.tables.read(table, group, array=array, ids=range(rows)),
                    rtol=1e-11,
                    atol=1e-13,
                )


def test_a_row_that_was_not_looked_up_keeps_its_bits() -> None:
    model = model_on(servers(2), "adam")
    before = model.tables.read("user", "embedding", array="weights", ids=range(NUM_USERS))
    batch = make_batch(8, seed=0)
    train_ids = set(np.unique(batch["ids"][:, 0]))
    tensors = {name: tf.constant(value) for name, value in batch.items()}
    model.train_step(tensors, step=tf.constant(0, tf.int64), learning_rate_scale=tf.constant(1.0, tf.float64))
    after = model.tables.read("user", "embedding", array="weights", ids=range(NUM_USERS))
    changed = {row for row in range(NUM_USERS) if (before[row] != after[row]).any()}
    assert changed == train_ids
    assert changed != set(range(NUM_USERS))


def test_each_server_holds_its_part_of_every_array() -> None:
    one, three = (model_on(servers(count)).tables for count in (1, 3))
    held = three.bytes_held()
    assert len(held) == 3
    assert len(set(held)) == 1
    rows = NUM_USERS + NUM_ITEMS + NUM_TAGS + 1
    assert one.bytes_held() == [rows * (4 + 1) * 2 * 8]  # two groups of width 4 and 1, weights and accumulators
    assert held[0] == -(-rows // 3) * (4 + 1) * 2 * 8


def test_consecutive_rows_lie_on_different_servers() -> None:
    tables = model_on(servers(3)).tables
    first = [variable.numpy() for variable in tables.weights()[:3]]
    rows = tables.read("user", "embedding", array="weights", ids=range(6))
    for row in range(6):
        np.testing.assert_array_equal(first[row % 3][row // 3], rows[row])


def test_slots_survive_a_restart(tmp_path) -> None:  # type: ignore[no-untyped-def]
    trained = model_on(servers(2), "ftrl")
    train(trained, 4)
    save_checkpoint(tmp_path / "4", trained, progress={"step": 4})
    for other in (model_on(servers(3), "ftrl", seed=2), model_on(None, "ftrl", seed=3)):
        load_checkpoint(tmp_path / "4", other)
        for group in trained.tables.groups:
            for array in trained.tables.arrays(group):
                np.testing.assert_array_equal(
                    other.tables.read("item", group, array=array, ids=range(NUM_ITEMS)),
                    trained.tables.read("item", group, array=array, ids=range(NUM_ITEMS)),
                )


def test_small_tables_are_not_cut_finer_than_told() -> None:
    assert num_shards(1000, servers=4, min_shard_bytes=250) == 4
    assert num_shards(999, servers=4, min_shard_bytes=250) == 3
    assert num_shards(10, servers=4, min_shard_bytes=250) == 1


def test_cowclip_and_limits_on_servers_are_those_of_one_device() -> None:
    rows = OptimizerSpec(kind="sgd", learning_rate=0.5, cowclip=CowClipSpec(r=0.003, zeta=1e-4))
    clipping = ClippingSpec(global_norm=0.02, include_tables=True)
    optimizers = OptimizersSpec(tables=rows, wide=rows, clipping=clipping)
    models = [
        build_model(SCHEMA, make_spec("deepfm"), optimizers=optimizers, seed=1, servers=where)
        for where in (None, servers(3))
    ]
    one, other = (train(model, 3) for model in models)
    np.testing.assert_allclose(other, one, rtol=1e-12)
    assert largest_difference(state(models[0]), state(models[1])) < 1e-12
