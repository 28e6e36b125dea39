"""On the simulator, whose true click probabilities are known: sampled training, calibrated scores."""

import datetime as dt
import zoneinfo

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from models.build import build_model
from models.ranking_model import RankingModel
from preprocessing.negative_sampling import kept_rows
from preprocessing.schema import DatasetSchema, IdField, TableSchema
from preprocessing.simulate_day import DayEvents, simulate_day
from preprocessing.simulate_shop import Sizes
from preprocessing.simulate_truth import build_truth
from tests.models.samples import make_optimizers, make_spec

KEEP = 0.1
BATCH = 1024
SIZES = Sizes(num_users=2_000, num_items=500, num_brands=20, new_users_per_day=0, new_items_per_day=0)
FIELDS = {"user": SIZES.num_users, "item": SIZES.num_items, "device": 4, "hour": 24, "position": 50}


def make_model(*, negative_keep: float) -> RankingModel:
    schema = DatasetSchema(
        raw_columns=(),
        id_fields=tuple(IdField(name=name, table=name) for name in FIELDS),
        tables=tuple(TableSchema(name=name, num_rows=size + 1) for name, size in FIELDS.items()),
        labels=("click",),
        negative_keep=negative_keep,
    )
    spec = make_spec("deepfm", precision="float32")
    return build_model(schema, spec, optimizers=make_optimizers("adagrad", learning_rate=0.05), seed=1)


def rows_of(events: DayEvents) -> pa.Table:
    """Returns a row for each impression, numbered, with its label."""
    clicked = np.zeros(len(events.click_probability), np.float32)
    clicked[events.clicks.row] = 1.0
    columns = {name: getattr(events.shown, name) for name in FIELDS}
    return pa.table({"number": np.arange(len(clicked)), **columns, "__label_click": clicked})


def ids_of(rows: pa.Table) -> np.ndarray:
    return np.stack([rows[name].to_numpy() for name in FIELDS], axis=1).astype(np.int64) + 1


def train(model: RankingModel, rows: pa.Table, *, epochs: int) -> None:
    step_of = tf.function(
        lambda batch, step: model.train_step(batch, step=step, learning_rate_scale=tf.constant(1.0)), autograph=False
    )
    ids, labels = ids_of(rows), rows["__label_click"].to_numpy()[:, None]
    random, step = np.random.default_rng(0), 0
    for _ in range(epochs):
        order = random.permutation(len(ids))
        for first in range(0, len(order) - BATCH + 1, BATCH):
            part = order[first : first + BATCH]
            batch = {"ids": ids[part], "labels": labels[part], "weight": np.ones((BATCH, 1), np.float32)}
            step_of({key: tf.constant(value) for key, value in batch.items()}, tf.constant(step, tf.int64))
            step += 1


@pytest.mark.slow
def test_scores_of_the_next_day_have_the_mean_of_the_true_probabilities() -> None:
    truth, zone = build_truth(SIZES, seed=5, days=2), zoneinfo.ZoneInfo("UTC")
    today, tomorrow = (
        simulate_day(
            truth, SIZES, seed=5, day=day, date=dt.date(2026, 1, 1) + dt.timedelta(day), zone=zone, num_rows=200_000
        )
        for day in (0, 1)
    )
    rows = rows_of(today)
    sample = rows.filter(pa.array(kept_rows(rows, keep=KEEP, labels=["click"])))
    assert sample.num_rows < 0.35 * rows.num_rows
    ids = tf.constant(ids_of(rows_of(tomorrow)))
    ratio = {}
    for negative_keep in (KEEP, 1.0):
        model = make_model(negative_keep=negative_keep)
        train(model, sample, epochs=3)
        score = tf.sigmoid(model.logits({"ids": ids})).numpy()
        ratio[negative_keep] = float(score.mean() / tomorrow.click_probability.mean())
    assert 0.93 < ratio[KEEP] < 1.07, ratio
    assert ratio[1.0] > 2.0, ratio
