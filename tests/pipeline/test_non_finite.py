"""Which records a batch was read from, and what is said of a loss that is not finite."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.config import ModelSpec
from pipeline.non_finite import batch_records, first_suspect, told
from pipeline.records import training_batches
from pipeline.train_spec import StrategySpec, TensorBoardSpec, TrainSpec
from pipeline.trainer import train
from preprocessing.dataset import Dataset
from preprocessing.errors import TrainingError
from tests.pipeline.planted_dataset import (
    SCHEMA,
    numbered_dataset,
    planted_dataset,
    planted_records,
    record,
    write_shard,
)

NAN = float("nan")


@pytest.mark.parametrize(("batch_size", "shuffle_rows"), [(16, 0), (16, 64), (12, 30), (7, 1000)])
def test_the_records_named_are_those_that_the_batch_has(tmp_path: Path, batch_size: int, shuffle_rows: int) -> None:
    counts = [37, 0, 5, 60]
    dataset = numbered_dataset(tmp_path, counts)
    order: dict[str, Any] = {"batch_size": batch_size, "seed": 5, "epoch": 2, "shuffle_rows": shuffle_rows}
    starts = np.cumsum([0, *counts])
    num_batches = 0
    for step, batch in enumerate(training_batches(dataset, "train", **order)):
        read = batch["dense"].numpy()[batch["weight"].numpy() > 0]
        found = batch_records(dataset, "train", step=step, **order).rows
        numbers = [starts[shard] + row + 1 for shard, rows in found.items() for row in rows]
        assert sorted(numbers) == sorted(int(number) for number in read)
        num_batches += 1
    assert num_batches == -(-sum(counts) // batch_size)


def test_many_files_are_counted_not_listed(tmp_path: Path) -> None:
    dataset = numbered_dataset(tmp_path, [3] * 6)
    found = batch_records(dataset, "train", batch_size=18, seed=1, epoch=0, step=0, shuffle_rows=0)
    assert found.files().endswith("numbered-2.tfrecord and 3 more files")


def test_without_a_suspect_it_is_what_comes_after_them() -> None:
    assert first_suspect(("a", "b", "c"), np.array([0.0, 1.0, 1.0])) == "b"
    assert first_suspect(("a",), np.zeros(1)).startswith("the logits")


def poisoned(folder: Path) -> Dataset:
    """Returns a dataset of two shards in which one price is not a number: record 10 of the second."""
    records = planted_records(24, seed=1)
    records[10] = record(ids=[1, 2], tags=[3, 0, 0], dense=NAN, label=1.0)
    valid = planted_dataset(folder, rows={"valid": [40]}).splits["valid"]
    shards = (write_shard(folder, "good", planted_records(40, seed=2)), write_shard(folder, "bad", records))
    return Dataset(folder=folder, schema=SCHEMA, splits={"train": shards, "valid": valid})


def test_a_run_that_meets_it_names_step_file_record_and_input_and_keeps_its_checkpoint(tmp_path: Path) -> None:
    dataset = poisoned(tmp_path / "data")
    spec = TrainSpec(
        batch_size=8,
        shuffle_rows=16,
        steps_per_execution=3,
        checkpoint_every_steps=1,
        tensorboard=TensorBoardSpec(enabled=False),
    )
    seed = 3  # of which the poisoned batch is not the first
    bad = next(
        step
        for step in range(8)
        if 10
        in batch_records(dataset, "train", batch_size=8, seed=seed, epoch=0, step=step, shuffle_rows=16).rows.get(1, ())
    )
    assert bad > 0
    with pytest.raises(TrainingError) as caught:
        train(
            dataset,
            model=ModelSpec(embedding_dim=2, hidden_units=(4,)),
            train=spec,
            strategy=StrategySpec(),
            seed=seed,
            folder=tmp_path / "run",
            observe=lambda event: None,
        )
    text = str(caught.value)
    path = tmp_path / "data" / "bad.tfrecord"
    assert text.startswith(f"step {bad} (epoch 0): the loss is nan; ")
    assert (
        f"the first tensor that is not finite is dense input 'price' of record 10 (from 0) of {path}; the batch" in text
    )
    assert f"the checkpoint after {bad} steps is kept" in text
    assert {file.name for file in (tmp_path / "run" / "resume").glob("[0-9]*")} >= {str(bad)}
    kept = (tmp_path / "run" / "resume" / str(bad)).rglob("*.npy")
    assert all(np.isfinite(np.load(file)).all() for file in kept)


def test_finite_inputs_are_not_named(tmp_path: Path) -> None:
    dataset = numbered_dataset(tmp_path, [8])
    found = batch_records(dataset, "train", batch_size=8, seed=1, epoch=0, step=0, shuffle_rows=0)
    assert found.not_finite() is None
    text = told(found, "dense weights 'mlp/0/kernel'")
    assert text == (
        "the first tensor that is not finite is dense weights 'mlp/0/kernel'; "
        f"the batch was read from {tmp_path / 'numbered-0.tfrecord'}"
    )
