import math

import numpy as np
import pytest
import tensorflow as tf

from models.build import build_model
from models.config import ModelSpec, OptimizersSpec
from models.loss import loss_share, sampling_offset
from models.ranking_model import RankingModel
from preprocessing.errors import ConfigError
from preprocessing.schema import DatasetSchema, IdField, TableSchema
from tests.models.samples import SCHEMA, make_optimizers, make_spec

KEEP = 0.1
JIT = pytest.param({"jit_compile": True}, marks=pytest.mark.slow)
RATES = np.array([0.002, 0.02, 0.1, 0.3, 0.5, 0.9])  # click rates of items 1 to 6


def log_odds(rates: np.ndarray) -> np.ndarray:
    return np.log(rates / (1 - rates))


def make_model(*, negative_keep: float, spec: ModelSpec | None = None) -> RankingModel:
    schema = DatasetSchema(
        raw_columns=(),
        id_fields=(IdField(name="item", table="item"),),
        tables=(TableSchema(name="item", num_rows=len(RATES) + 1),),
        labels=("click",),
        negative_keep=negative_keep,
    )
    optimizers: OptimizersSpec = make_optimizers("adam", learning_rate=0.05)
    return build_model(schema, spec or make_spec("deepfm"), optimizers=optimizers, seed=1)


def sampled_batch() -> dict[str, tf.Tensor]:
    """Returns a clicked and an unclicked row of each item, weighing as much as in a sample."""
    items = np.arange(1, len(RATES) + 1)
    return {
        "ids": tf.constant(np.concatenate([items, items])[:, None]),
        "labels": tf.constant(np.repeat([1.0, 0.0], len(RATES))[:, None], tf.float32),
        "weight": tf.constant(np.concatenate([RATES, (1 - RATES) * KEEP])[:, None], tf.float32),
    }


def train(model: RankingModel, *, steps: int) -> tuple[np.ndarray, float]:
    """Returns the logits of the items and the last loss."""
    batch = sampled_batch()

    @tf.function(autograph=False)
    def one(step: tf.Tensor) -> tf.Tensor:
        return model.train_step(batch, step=step, learning_rate_scale=tf.constant(1.0))["loss"]

    losses = [float(one(tf.constant(step, tf.int64))) for step in range(steps)]
    return model.logits(batch).numpy()[: len(RATES), 0], losses[-1]


def test_the_loss_is_the_weighted_mean_of_cross_entropies() -> None:
    logits, labels = np.array([[0.0], [2.0], [-1.0]]), np.array([[1.0], [0.0], [1.0]])
    weight = np.array([[1.0], [3.0], [0.0]])
    share = loss_share(
        tf.constant(logits), tf.constant(labels), weight=tf.constant(weight), global_weight=8.0, label_weights=[1.0]
    )
    assert float(share) == pytest.approx((math.log(2) + 3 * math.log(1 + math.exp(2))) / 8)


def test_several_labels_count_by_their_weights() -> None:
    logits, labels = tf.constant([[0.0, 2.0]]), tf.constant([[1.0, 0.0]])
    one = {"weight": tf.constant([[1.0]]), "global_weight": 1.0}
    of_click, of_buy = math.log(2), math.log(1 + math.exp(2))
    assert float(loss_share(logits, labels, **one, label_weights=[1, 1])) == pytest.approx((of_click + of_buy) / 2)
    assert float(loss_share(logits, labels, **one, label_weights=[3, 1])) == pytest.approx((3 * of_click + of_buy) / 4)


def test_a_weight_of_a_label_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train.label_weights: no label 'clik'; there are click"):
        build_model(SCHEMA, make_spec("deepfm"), optimizers=make_optimizers("sgd"), seed=1, label_weights={"clik": 2.0})


def test_the_offset_is_the_log_of_how_much_odds_grow() -> None:
    assert sampling_offset(1.0) == 0.0
    probability = 0.03
    sampled = probability / (probability + (1 - probability) * KEEP)
    shift = log_odds(np.array(sampled)) - log_odds(np.array(probability))
    assert sampling_offset(KEEP) == pytest.approx(float(shift))


def test_a_model_of_sampled_negatives_scores_the_rates_of_the_full_data() -> None:
    logits, _ = train(make_model(negative_keep=KEEP), steps=600)
    np.testing.assert_allclose(logits, log_odds(RATES), atol=0.02)


def test_without_the_correction_it_scores_the_rates_of_the_sample() -> None:
    logits, _ = train(make_model(negative_keep=1.0), steps=600)
    np.testing.assert_allclose(logits, log_odds(RATES) - math.log(KEEP), atol=0.02)


@pytest.mark.parametrize("settings", [JIT, {"precision": "mixed_bfloat16"}, {"precision": "float32"}])
def test_compiled_and_reduced_steps_are_corrected_alike(settings: dict[str, object]) -> None:
    spec = make_spec("deepfm", **settings)
    _, plain = train(make_model(negative_keep=KEEP), steps=1)
    _, other = train(make_model(negative_keep=KEEP, spec=spec), steps=1)
    assert other == pytest.approx(plain, rel=0.02)
    _, uncorrected = train(make_model(negative_keep=1.0, spec=spec), steps=1)
    assert abs(uncorrected - plain) > 0.1
