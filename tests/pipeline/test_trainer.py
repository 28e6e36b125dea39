import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models.config import ModelSpec, OptimizerSpec, OptimizersSpec
from pipeline.train_events import Evaluated, Finished, Resumed, Started, Stepped, TrainEvent, TrainResult, Warned
from pipeline.train_spec import EarlyStoppingSpec, StrategySpec, TensorBoardSpec, TrainSpec
from pipeline.trainer import train
from preprocessing.dataset import Dataset
from preprocessing.errors import ArtefactError, CorruptError, DataError, LabelError, TrainingError
from preprocessing.schema import TableSchema
from tests.pipeline.planted_dataset import NUM_IDS, planted_dataset

MODEL = ModelSpec(embedding_dim=4, hidden_units=(8,), dropout=0.1)
SPEC = TrainSpec(
    batch_size=64,
    epochs=2,
    optimizers=OptimizersSpec(
        tables=OptimizerSpec(kind="adagrad", learning_rate=0.3), dense=OptimizerSpec(kind="adam", learning_rate=0.02)
    ),
    shuffle_rows=256,
    steps_per_execution=5,
    evaluate_every_epochs=1.0,
    evaluate_batch_size=100,
    checkpoint_every_steps=7,
    early_stopping=EarlyStoppingSpec(patience=None),
    tensorboard=TensorBoardSpec(every_steps=5),
)


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("planted")
    return planted_dataset(folder, rows={"train": [700, 500], "valid": [150, 100], "test": [130]})


def run(dataset: Dataset, folder: Path, spec: TrainSpec = SPEC, **options: Any) -> tuple[TrainResult, list[TrainEvent]]:
    events: list[TrainEvent] = []
    settings = {"model": MODEL, "strategy": StrategySpec(), "seed": 1, "observe": events.append, **options}
    return train(dataset, train=spec, folder=folder, **settings), events


@pytest.fixture(scope="module")
def whole(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainResult, list[TrainEvent], Path]:
    folder = tmp_path_factory.mktemp("whole")
    return *run(dataset, folder), folder


def weights(checkpoint: Path) -> dict[str, bytes]:
    """Returns the content of every array of a checkpoint."""
    return {str(path.relative_to(checkpoint)): path.read_bytes() for path in checkpoint.rglob("*.npy")}


def test_finds_the_planted_rule(whole: tuple[TrainResult, list[TrainEvent], Path]) -> None:
    result, _, _ = whole
    assert result.metrics["valid"]["auc"] > 0.9
    assert result.metrics["test"]["auc"] > 0.9
    assert result.metrics["test"]["log_loss"] < 0.5


def test_tells_what_it_does(whole: tuple[TrainResult, list[TrainEvent], Path]) -> None:
    result, events, _ = whole
    assert events[0] == Started(step=0, total_steps=38, steps_per_epoch=19, num_rows=1200, num_replicas=1)
    assert events[-1] == Finished(result)
    stepped = [event for event in events if isinstance(event, Stepped)]
    assert stepped[-1].step == 38
    assert stepped[-1].eta_s == 0
    assert {event.epoch for event in stepped} == {0, 1}
    assert [event.step for event in events if isinstance(event, Evaluated)] == [19, 38]


def test_scores_follow_the_record_order_and_come_from_the_best_weights(
    whole: tuple[TrainResult, list[TrainEvent], Path], dataset: Dataset
) -> None:
    result, events, folder = whole
    scores = np.load(result.scores["valid"], allow_pickle=False)
    assert result.scores["valid"] == folder / "scores-valid.npy"
    assert (scores.dtype, scores.shape) == (np.dtype(np.float32), (250, 1))
    assert np.load(result.scores["test"], allow_pickle=False).shape == (130, 1)
    best = max((event for event in events if isinstance(event, Evaluated)), key=lambda event: event.metrics["auc"])
    assert best.is_best
    assert result.best_step == best.step
    assert dict(result.metrics["valid"]) == dict(best.metrics)


def test_history_and_curves_are_written(whole: tuple[TrainResult, list[TrainEvent], Path]) -> None:
    _, events, folder = whole
    history = json.loads((folder / "history.json").read_text())["evaluations"]
    evaluated = [event for event in events if isinstance(event, Evaluated)]
    assert [entry["step"] for entry in history] == [event.step for event in evaluated]
    assert history[-1]["auc"] == evaluated[-1].metrics["auc"]
    assert history[-1]["loss"] < history[0]["loss"]
    assert list((folder / "tensorboard").glob("events.out.tfevents.*"))


def test_keeps_as_many_checkpoints_as_told(whole: tuple[TrainResult, list[TrainEvent], Path]) -> None:
    result, _, folder = whole
    assert sorted(path.name for path in (folder / "resume").iterdir()) == ["35", "38"]
    assert [path.name for path in (folder / "best").iterdir()] == [str(result.best_step)]


@pytest.mark.parametrize(
    "kill_at", [25, pytest.param(3, marks=pytest.mark.slow), pytest.param(38, marks=pytest.mark.slow)]
)
def test_a_run_stopped_at_any_step_ends_with_the_same_weights(
    whole: tuple[TrainResult, list[TrainEvent], Path], dataset: Dataset, tmp_path: Path, kill_at: int
) -> None:
    def kill(event: TrainEvent) -> None:
        if isinstance(event, Stepped) and event.step >= kill_at:
            raise Killed

    with pytest.raises(Killed):
        run(dataset, tmp_path, observe=kill)
    result, events = run(dataset, tmp_path)
    expected, _, folder = whole
    resumed = next((event for event in events if isinstance(event, Resumed)), None)
    assert (resumed.step if resumed else 0) == {3: 0, 25: 21, 38: 35}[kill_at]
    assert weights(tmp_path / "resume" / "38") == weights(folder / "resume" / "38")
    assert weights(result.checkpoint) == weights(expected.checkpoint)
    assert result.metrics == expected.metrics
    assert (tmp_path / "history.json").read_bytes() == (folder / "history.json").read_bytes()


def test_a_damaged_checkpoint_is_passed_over(
    whole: tuple[TrainResult, list[TrainEvent], Path], dataset: Dataset, tmp_path: Path
) -> None:
    shutil.copytree(whole[2], tmp_path, dirs_exist_ok=True)
    damaged = next((tmp_path / "resume" / "38").rglob("*.npy"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    _, events = run(dataset, tmp_path)
    resumed = next(event for event in events if isinstance(event, Resumed))
    assert (resumed.step, [path.name for path in resumed.skipped]) == (35, ["38"])
    assert weights(tmp_path / "resume" / "38") == weights(whole[2] / "resume" / "38")


def test_it_says_so_if_no_checkpoint_can_be_read(
    whole: tuple[TrainResult, list[TrainEvent], Path], dataset: Dataset, tmp_path: Path
) -> None:
    shutil.copytree(whole[2], tmp_path, dirs_exist_ok=True)
    for checkpoint in (tmp_path / "resume").iterdir():
        next(checkpoint.rglob("*.npy")).write_bytes(b"")
    with pytest.raises(CorruptError, match="none of the checkpoints"):
        run(dataset, tmp_path)


def test_a_finished_run_is_not_trained_again(
    whole: tuple[TrainResult, list[TrainEvent], Path], dataset: Dataset
) -> None:
    expected, _, folder = whole
    result, events = run(dataset, folder)
    assert not any(isinstance(event, Stepped) for event in events)
    assert result == expected


def test_a_folder_of_other_settings_is_refused(
    whole: tuple[TrainResult, list[TrainEvent], Path], dataset: Dataset
) -> None:
    with pytest.raises(ArtefactError, match="other data, model or training settings"):
        run(dataset, whole[2], SPEC.model_copy(update={"batch_size": 32}))


def test_stops_early_and_keeps_the_best(dataset: Dataset, tmp_path: Path) -> None:
    still = OptimizersSpec(
        tables=OptimizerSpec(kind="sgd", learning_rate=1e-30), dense=OptimizerSpec(kind="sgd", learning_rate=1e-30)
    )
    spec = SPEC.model_copy(
        update={"optimizers": still, "evaluate_every_epochs": 0.25, "early_stopping": EarlyStoppingSpec(patience=2)}
    )
    result, events = run(dataset, tmp_path, spec)
    assert [event.is_best for event in events if isinstance(event, Evaluated)] == [True, False, False]
    assert (result.stopped_early, result.num_steps, result.best_step) == (True, 15, 5)
    again, events = run(dataset, tmp_path, spec)
    assert again == result
    assert not any(isinstance(event, Stepped) for event in events)


def test_without_a_valid_split_the_last_weights_are_the_best(tmp_path: Path) -> None:
    dataset = planted_dataset(tmp_path / "data", rows={"train": [100], "valid": []})
    result, events = run(dataset, tmp_path / "run", SPEC.model_copy(update={"max_steps": 3}))
    assert (result.best_step, result.num_steps) == (3, 3)
    assert dict(result.scores) == {}
    assert not any(isinstance(event, Evaluated) for event in events)


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_checkpoint(
    dataset: Dataset, tmp_path: Path
) -> None:
    rates = OptimizersSpec(
        tables=OptimizerSpec(kind="sgd", learning_rate=1e30), dense=OptimizerSpec(kind="sgd", learning_rate=1e30)
    )
    spec = SPEC.model_copy(update={"checkpoint_every_steps": 1, "optimizers": rates, "max_steps": 20})
    with pytest.raises(TrainingError, match=r"step \d \(epoch 0\): .*(not finite|the loss is (nan|inf))"):
        run(dataset, tmp_path, spec)
    kept = list((tmp_path / "resume").glob("[0-9]*"))
    assert all(np.isfinite(np.load(path)).all() for checkpoint in kept for path in checkpoint.rglob("*.npy"))


def test_two_replicas_train_the_same_model_as_one(dataset: Dataset, tmp_path: Path) -> None:
    model = MODEL.model_copy(update={"precision": "float64", "batch_norm": True})
    spec = SPEC.model_copy(update={"batch_size": 63, "max_steps": 25, "steps_per_execution": 25})  # 63 is odd
    histories: list[list[dict[str, float]]] = []
    for strategy in (StrategySpec(), StrategySpec(kind="mirrored", virtual_cpus=2)):
        folder = tmp_path / strategy.kind
        _, events = run(dataset, folder, spec, model=model, strategy=strategy)
        assert next(event for event in events if isinstance(event, Started)).num_replicas == len(histories) + 1
        histories.append(json.loads((folder / "history.json").read_text())["evaluations"])
    one, two = histories
    assert [entry["loss"] for entry in two] == pytest.approx([entry["loss"] for entry in one], rel=1e-9)
    assert [entry["log_loss"] for entry in two] == pytest.approx([entry["log_loss"] for entry in one], rel=1e-6)


@pytest.mark.slow
def test_a_run_goes_on_at_another_replica_count(dataset: Dataset, tmp_path: Path) -> None:
    def kill(event: TrainEvent) -> None:
        if isinstance(event, Stepped) and event.step >= 10:
            raise Killed

    spec = SPEC.model_copy(update={"max_steps": 14})
    with pytest.raises(Killed):
        run(dataset, tmp_path, spec, strategy=StrategySpec(kind="mirrored", virtual_cpus=2), observe=kill)
    _, events = run(dataset, tmp_path, spec)
    assert next(event for event in events if isinstance(event, Resumed)).step == 7


def test_ids_that_no_table_has_are_counted_and_told(dataset: Dataset, tmp_path: Path) -> None:
    tables = (TableSchema(name="user", num_rows=10), TableSchema(name="item", num_rows=NUM_IDS))
    smaller = dataclasses.replace(dataset, schema=dataset.schema.model_copy(update={"tables": tables}))
    paths = [dataset.folder / shard.records for shard in dataset.splits["train"]]
    records = tf.data.TFRecordDataset([str(path) for path in paths]).as_numpy_iterator()
    examples = [tf.train.Example.FromString(one) for one in records]
    users = [example.features.feature["ids"].int64_list.value[0] for example in examples]
    result, events = run(smaller, tmp_path, SPEC.model_copy(update={"epochs": 1}))
    manifest = json.loads((tmp_path / "resume" / str(result.num_steps) / "manifest.json").read_text())
    assert manifest["progress"]["state"]["out_of_range"] == sum(user >= 10 for user in users) > 0
    assert sum(isinstance(event, Warned) and "no table has" in event.text for event in events) == 1


def test_an_empty_training_split_is_refused_before_training(tmp_path: Path) -> None:
    dataset = planted_dataset(tmp_path / "data", rows={"train": [], "valid": [10]})
    with pytest.raises(DataError, match="split 'train' has no rows"):
        run(dataset, tmp_path / "run")


@pytest.mark.parametrize(("label", "text"), [(0.0, "all are 0"), (1.0, "all are 1")])
def test_labels_of_one_class_are_refused_before_training(tmp_path: Path, label: float, text: str) -> None:
    dataset = planted_dataset(tmp_path / "data", rows={"train": [30], "valid": [10]}, label=label)
    with pytest.raises(LabelError, match=f"split 'train': label 'click' .*{text}"):
        run(dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()
