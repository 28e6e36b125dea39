"""A candidate and a live model, both real SavedModels, held against each other on the same raw rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from pipeline.bootstrap import resampled, upper_bound
from pipeline.config import Config
from pipeline.evaluate_spec import GateRule
from pipeline.live_model import Contest
from pipeline.scoring import score_split
from preprocessing.dataset import Dataset, Shard
from preprocessing.errors import ArtefactError
from preprocessing.schema import LABEL_PREFIX, WEIGHT_COLUMN, DatasetSchema, RawColumn
from tests.pipeline.configs import tiny_tree

NUM_ROWS = 300
SCHEMA = DatasetSchema(
    raw_columns=(RawColumn(name="price", dtype="float32"),),
    id_fields=(),
    list_fields=(),
    dense=("price",),
    tables=(),
    labels=("click",),
)


def write_model(folder: Path, *, slope: float, more: tuple[str, ...] = (), label: str = "click") -> Path:
    """Writes a SavedModel that gives sigmoid(slope x price) and takes `more` string columns that it ignores."""
    module = tf.Module()

    @tf.function(autograph=False)
    def score(price: tf.Tensor, **_: tf.Tensor) -> dict[str, tf.Tensor]:
        return {label: tf.sigmoid(slope * price)}

    specs = {name: tf.TensorSpec([None], tf.string, name=name) for name in more}
    signature = score.get_concrete_function(price=tf.TensorSpec([None], tf.float32, name="price"), **specs)
    tf.saved_model.save(module, str(folder), signatures={"serving_default": signature})
    return folder


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder, random = tmp_path_factory.mktemp("dataset"), np.random.default_rng(1)
    price = random.normal(size=NUM_ROWS).astype(np.float32)
    rows = pa.table(
        {
            "price": price,
            "user": [f"u{number}" for number in random.integers(0, 30, NUM_ROWS)],
            "category": [b"even" if number % 2 == 0 else b"odd" for number in range(NUM_ROWS)],
            LABEL_PREFIX + "click": (random.random(NUM_ROWS) < 1 / (1 + np.exp(-2 * price))).astype(np.float32),
            WEIGHT_COLUMN: np.ones(NUM_ROWS, np.float32),
        }
    )
    halves = (rows.slice(0, 100), rows.slice(100))
    for number, half in enumerate(halves):
        pq.write_table(half, folder / f"{number}.parquet")
    shards = tuple(
        Shard(period="all", records=f"{number}.tfrecord", rows=f"{number}.parquet", num_rows=half.num_rows)
        for number, half in enumerate(halves)
    )
    return Dataset(folder=folder, schema=SCHEMA, splits={"train": shards, "test": shards})


def config(**evaluate: Any) -> Config:
    tree = {**tiny_tree(), "evaluate": {"resamples": 50, "slices": [{"column": "category"}], **evaluate}}
    return Config.model_validate(tree)


def contest(dataset: Dataset, candidate: Path, live: Path) -> Contest:
    def scores(split: str) -> Any:
        return score_split(candidate, dataset, split, batch_size=64).scores

    return Contest(config(), dataset, candidate=candidate, scores=scores, live=live)


def rule(metric: str, **values: Any) -> GateRule:
    return GateRule.model_validate({"metric": metric, "against": "live", **values})


def test_a_better_candidate_loses_nothing_and_a_worse_one_what_the_shared_draws_say(
    dataset: Dataset, tmp_path: Path
) -> None:
    good, bad = write_model(tmp_path / "good", slope=2.0), write_model(tmp_path / "bad", slope=-0.5)
    assert contest(dataset, good, bad).compare(rule("auc")).loss < 0
    found = contest(dataset, bad, good).compare(rule("log_loss", confidence=0.9))
    rows = score_split(bad, dataset, "test", keep=("user",), batch_size=1000)
    better = score_split(good, dataset, "test", batch_size=7)
    drawn = resampled(
        rows.labels[:, 0],
        {"bad": rows.scores[:, 0], "good": better.scores[:, 0]},
        users=rows.columns["user"].to_numpy(),
        num_resamples=50,
        seed=config().seed,
    )
    differences = drawn["bad"]["log_loss"] - drawn["good"]["log_loss"]
    assert found.loss == pytest.approx(upper_bound(differences, confidence=0.9))
    assert (found.candidate, found.live) == pytest.approx(
        (drawn["bad"]["log_loss"].mean(), drawn["good"]["log_loss"].mean())
    )
    same = contest(dataset, good, good).compare(rule("auc"))
    assert (same.loss, same.candidate) == (0.0, same.live)


def test_a_slice_is_compared_on_its_own_rows(dataset: Dataset, tmp_path: Path) -> None:
    good, bad = write_model(tmp_path / "good", slope=2.0), write_model(tmp_path / "bad", slope=-0.5)
    held = contest(dataset, good, bad)
    parts = [held.compare(rule("auc", slice=f"category={name}")).candidate for name in ("even", "odd")]
    assert parts[0] != parts[1]
    with pytest.raises(ArtefactError, match="no slice 'category=neither'; it has category=even, category=odd"):
        held.compare(rule("auc", slice="category=neither"))


def test_a_live_model_with_other_inputs_is_scored_from_the_raw_rows(dataset: Dataset, tmp_path: Path) -> None:
    good = write_model(tmp_path / "good", slope=2.0)
    older = write_model(tmp_path / "older", slope=2.0, more=("category",))
    assert contest(dataset, good, older).compare(rule("auc")).loss == 0.0
    gone = write_model(tmp_path / "gone", slope=2.0, more=("city",))
    with pytest.raises(ArtefactError, match="takes column 'city', which the rows of"):
        contest(dataset, good, gone).compare(rule("auc"))
    other = write_model(tmp_path / "other", slope=2.0, label="buy")
    with pytest.raises(ArtefactError, match="gives no 'click'; it gives buy"):
        contest(dataset, good, other).compare(rule("auc"))


def test_size_and_latency_of_both_are_measured_in_one_run(dataset: Dataset, tmp_path: Path) -> None:
    small, large = write_model(tmp_path / "small", slope=1.0), write_model(tmp_path / "large", slope=1.0)
    (large / "assets" / "more").write_bytes(bytes(2_000_000))
    held = contest(dataset, large, small)
    assert held.compare(rule("size_mb")).loss == pytest.approx(2.0, abs=0.01)
    times = held.compare(rule("latency_ms"))
    assert times.candidate > 0
    assert times.loss == pytest.approx(times.candidate - times.live)
