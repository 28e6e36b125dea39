"""A run with a trace of chosen steps, histograms, parts and a falling rate: what it leaves is read back."""

from pathlib import Path

import pytest
import tensorflow as tf
from pydantic import ValidationError
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

from models.config import ModelSpec, OptimizerSpec, OptimizersSpec
from pipeline.train_events import TrainEvent
from pipeline.train_spec import EarlyStoppingSpec, PlateauRate, StrategySpec, TensorBoardSpec, TrainSpec
from pipeline.trainer import train
from tests.pipeline.planted_dataset import planted_dataset

STILL = OptimizerSpec(kind="sgd", learning_rate=1e-30)  # no evaluation is better than the first
SPEC = TrainSpec(
    batch_size=16,
    epochs=4,
    optimizers=OptimizersSpec(tables=STILL, dense=STILL.model_copy(update={"learning_rate": 1e-29})),
    learning_rate=PlateauRate(divide_by=10, patience=1),
    accumulate_steps=2,
    early_stopping=EarlyStoppingSpec(patience=None),
    steps_per_execution=50,
    tensorboard=TensorBoardSpec(every_steps=1, histograms=True),
    profile="3-5",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("profiled")
    dataset = planted_dataset(root / "data", rows={"train": [64], "valid": [30]})
    events: list[TrainEvent] = []
    model = ModelSpec(embedding_dim=2, hidden_units=(4,), precision="mixed_float16")
    train(
        dataset,
        model=model,
        train=SPEC,
        strategy=StrategySpec(),
        seed=1,
        folder=root / "run",
        observe=events.append,
    )
    return root / "run"


def test_the_trace_has_the_chosen_steps_and_no_others(folder: Path) -> None:
    (path,) = folder.rglob("*.xplane.pb")
    space = XSpace.FromString(path.read_bytes())
    steps = set()
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                if plane.event_metadata[event.metadata_id].name == "train":
                    named = {plane.stat_metadata[stat.metadata_id].name: stat for stat in event.stats}
                    steps.add(named["step_num"].int64_value or named["step_num"].uint64_value)
    assert steps == {3, 5}  # an epoch has four steps: executions of 3 to 4, and of 5
    names = {entry.name for plane in space.planes for entry in plane.event_metadata.values()}
    assert any("MatMul" in name for name in names)
    assert path.relative_to(folder).parts[:3] == ("tensorboard", "plugins", "profile")  # where TensorBoard looks


@pytest.fixture(scope="module")
def curves(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    return found


def values(curves: EventAccumulator, name: str) -> dict[int, float]:
    return {event.step: float(tf.make_ndarray(event.tensor_proto)) for event in curves.Tensors(f"train/{name}")}


def test_the_rate_falls_after_each_evaluation_that_is_not_better(curves: EventAccumulator) -> None:
    rates = values(curves, "learning_rate")
    expected = {4: 1e-29, 8: 1e-29, 12: 1e-30, 16: 1e-31}  # evaluated after 4, 8, 12: the second and third are worse
    assert {step: rates[step] for step in expected} == pytest.approx(expected, rel=1e-6, abs=0)


def test_the_loss_scale_and_skipped_steps_are_curves(curves: EventAccumulator) -> None:
    assert values(curves, "loss_scale")[16] == 2.0**15
    assert values(curves, "skipped_steps")[16] == 0


def test_lengths_of_rows_are_histograms(curves: EventAccumulator) -> None:
    tags = curves.Tags()["tensors"]
    assert {f"row_norms/{table}/{group}" for table in ("user", "item") for group in ("embedding", "first_order")} < {
        *tags
    }


@pytest.mark.parametrize("text", ["5-3", "0-4", "7", "a-b", "1-2-3"])
def test_a_range_of_steps_is_two_rising_numbers(text: str) -> None:
    with pytest.raises(ValidationError, match="profile"):
        TrainSpec(profile=text)


def test_precision_and_recall_are_a_curve_at_each_evaluation(curves: EventAccumulator) -> None:
    first, *_ = curves.Tensors("valid/click/pr_curves")
    *_, precision, recall = tf.make_ndarray(first.tensor_proto)  # true and false positives, negatives, then these
    assert first.step == 4
    assert (recall[0], recall[-1]) == (1.0, 0.0)  # from the lowest threshold to one that no score reaches
    assert 0 < precision[0] < 1  # the rate of positives
