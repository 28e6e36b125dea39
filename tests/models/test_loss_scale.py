"""float16 steps: the scale follows overflow, an overflowing step changes nothing, the others are those of float32."""

import numpy as np
import pytest
import tensorflow as tf

from models.build import build_model
from models.loss_scale import FIRST_SCALE, GOOD_STEPS, LARGEST_SCALE, SCALE, SKIPPED, LossScale
from models.partitioned_tables import ParameterServers
from models.ranking_model import RankingModel
from models.replicas import Replicas
from models.weights import WeightMaker
from preprocessing.errors import ConfigError
from tests.models.samples import SCHEMA, Stepper, largest_difference, make_batch, make_optimizers, make_spec, state

Strategies = dict[str, tf.distribute.Strategy | None]


def built(precision: str, strategy: tf.distribute.Strategy | None = None) -> RankingModel:
    spec = make_spec("deepfm", precision=precision, embeddings={"placement": "sharded"})
    return build_model(SCHEMA, spec, optimizers=make_optimizers("adam"), seed=3, strategy=strategy)


def weights(model: RankingModel) -> dict[str, np.ndarray]:
    return {name: value for name, value in state(model).items() if not name.startswith("loss_scale/")}


def test_the_scale_halves_on_overflow_and_doubles_after_a_time_without() -> None:
    make = WeightMaker(Replicas(), seed=1, dtype=tf.float32)
    scale = LossScale(make, Replicas())
    scale.follow(tf.constant(False))
    assert scale.figures() == {"loss_scale": FIRST_SCALE / 2, "skipped_steps": 1.0}
    make.statistics["loss_scale/good_steps"].assign(GOOD_STEPS - 2.0)
    scale.follow(tf.constant(True))
    assert scale.figures()["loss_scale"] == FIRST_SCALE / 2
    scale.follow(tf.constant(True))
    assert scale.figures() == {"loss_scale": FIRST_SCALE, "skipped_steps": 1.0}
    assert float(make.statistics["loss_scale/good_steps"]) == 0


@pytest.mark.parametrize(("scale", "exhausted"), [(2.0, False), (1.0, True)])
def test_no_smaller_scale_helps_once_it_is_one(scale: float, exhausted: bool) -> None:
    make = WeightMaker(Replicas(), seed=1, dtype=tf.float32)
    one = LossScale(make, Replicas())
    make.statistics[SCALE].assign(scale)
    assert bool(one.exhausted(tf.constant(False))) is exhausted
    assert not bool(one.exhausted(tf.constant(True)))
    one.follow(tf.constant(False))
    assert one.figures()["loss_scale"] == 1.0


@pytest.mark.parametrize("strategy", [pytest.param("none", marks=pytest.mark.slow), "mirrored"])
def test_a_step_that_overflows_on_any_replica_changes_no_weight(strategies: Strategies, strategy: str) -> None:
    model = built("mixed_float16", strategies[strategy])
    stepper, batch = Stepper(model), make_batch(8, seed=0)
    batch["weight"][:4] = 0  # all that overflows is on the last replica
    model.dense_variables[SCALE].assign(LARGEST_SCALE)
    first = weights(model)
    skipped = 0
    while model.loss_scale_figures()["skipped_steps"] == skipped:
        assert largest_difference(weights(model), first) == 0
        assert np.isfinite(stepper(batch))
        skipped += 1
    assert largest_difference(weights(model), first) > 0
    assert model.loss_scale_figures() == {
        "loss_scale": LARGEST_SCALE / 2 ** (skipped - 1),
        "skipped_steps": skipped - 1,
    }
    assert skipped > 2
    assert all(np.isfinite(value).all() for value in weights(model).values())


def test_float16_trains_as_float32_does() -> None:
    full, half = Stepper(built("float32")), Stepper(built("mixed_float16"))
    batches = [make_batch(32, seed=i) for i in range(12)]
    losses = np.array([[full(batch), half(batch)] for batch in batches])
    np.testing.assert_allclose(losses[:, 1], losses[:, 0], atol=1e-3)
    assert not np.array_equal(losses[:, 1], losses[:, 0])
    assert float(half.model.dense_variables[SKIPPED]) == 0


def test_parameter_servers_refuse_it() -> None:
    spec = make_spec("deepfm", precision="mixed_float16")
    with pytest.raises(ConfigError, match="use mixed_bfloat16"):
        build_model(
            SCHEMA,
            spec,
            optimizers=make_optimizers("adam"),
            seed=3,
            servers=ParameterServers(("/job:ps/replica:0/task:0/device:CPU:0",)),
        )
