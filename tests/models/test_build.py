"""What cannot be built."""

import pytest
import tensorflow as tf

from models.build import NETWORKS, build_model
from models.config import OptimizersSpec
from preprocessing.errors import ConfigError, TrainingError
from tests.models.samples import SCHEMA, Stepper, largest_difference, make_batch, make_spec, state

Strategies = dict[str, tf.distribute.Strategy | None]


def test_a_model_without_ids_is_refused() -> None:
    schema = SCHEMA.model_copy(update={"id_fields": (), "list_fields": ()})
    with pytest.raises(ConfigError, match="at least one feature with ids"):
        build_model(schema, make_spec("deepfm"), optimizers=OptimizersSpec(), seed=1)


def test_compilation_is_refused_where_it_cannot_work(strategies: Strategies) -> None:
    with pytest.raises(ConfigError, match="batch_norm"):
        spec = make_spec("deepfm", jit_compile=True, batch_norm=True)
        build_model(SCHEMA, spec, optimizers=OptimizersSpec(), seed=1)
    with pytest.raises(ConfigError, match="one replica, not on 2"):
        spec = make_spec("deepfm", jit_compile=True)
        build_model(SCHEMA, spec, optimizers=OptimizersSpec(), seed=1, strategy=strategies["mirrored"])


def test_building_inside_a_strategys_scope_is_refused(strategies: Strategies) -> None:
    strategy = strategies["mirrored"]
    assert strategy is not None
    with strategy.scope(), pytest.raises(TrainingError, match="outside"):
        build_model(SCHEMA, make_spec("deepfm"), optimizers=OptimizersSpec(), seed=1, strategy=strategy)


def test_a_step_on_two_replicas_outside_of_run_is_refused(strategies: Strategies) -> None:
    model = build_model(
        SCHEMA, make_spec("deepfm"), optimizers=OptimizersSpec(), seed=1, strategy=strategies["mirrored"]
    )
    with pytest.raises(TrainingError, match=r"inside strategy.run"):
        model.replicas.all_sum([tf.constant(1.0)])


@pytest.mark.parametrize("kind", [*NETWORKS, "tests.models.own_networks:Tower"])
def test_several_labels_and_no_numbers_are_built(kind: str) -> None:
    schema = SCHEMA.model_copy(update={"labels": ("click", "buy"), "dense": ()})
    model = build_model(schema, make_spec(kind), optimizers=OptimizersSpec(), seed=1)
    batch = {
        "ids": tf.constant([[1, 2], [3, 4]], tf.int64),
        "list/history": tf.zeros((2, 3), tf.int64),
        "list/tags": tf.zeros((2, 2), tf.int64),
        "labels": tf.constant([[0.0, 1.0], [1.0, 1.0]]),
        "weight": tf.ones((2, 1)),
    }
    assert model.logits(batch).shape == (2, 2)
    outputs = model.train_step(batch, step=tf.constant(0, tf.int64), learning_rate_scale=tf.constant(1.0))
    assert float(outputs["weight"]) == 2.0


@pytest.mark.slow
def test_a_compiled_step_equals_a_plain_one() -> None:
    results = []
    for jit_compile in (False, True):
        spec = make_spec("deepfm", jit_compile=jit_compile, dropout=0.25)
        model = build_model(SCHEMA, spec, optimizers=OptimizersSpec(), seed=1)
        stepper = Stepper(model)
        losses = [stepper(make_batch(16, seed=i)) for i in range(2)]
        results.append((losses, state(model)))
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-12)
    assert largest_difference(results[0][1], results[1][1]) < 1e-12
