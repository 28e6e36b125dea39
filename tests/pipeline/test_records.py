import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pipeline.epochs import num_streams, plan_epoch, shuffle_keys, stream_seeds, window_rows
from pipeline.record_faults import reading
from pipeline.records import (
    Share,
    batch_spec,
    blank_record,
    evaluation_batches,
    parse_batch,
    training_batches,
    training_records,
)
from preprocessing.dataset import Dataset, Shard
from preprocessing.errors import CorruptError
from tests.pipeline.planted_dataset import SCHEMA, numbered_dataset, write_shard

COUNTS = [13, 0, 30, 1, 27]  # 71 rows: with batches of 16, 4 whole ones and 7 rows


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return numbered_dataset(tmp_path_factory.mktemp("numbered"), COUNTS)


def numbers(batches: tf.data.Dataset) -> np.ndarray:
    """Returns the row numbers of each batch [steps, B]; 0 is padding, and weighs nothing."""
    rows = []
    for batch in batches:
        number, weight = batch["dense"].numpy()[:, 0], batch["weight"].numpy()[:, 0]
        assert ((number > 0) == (weight > 0)).all()
        rows.append(number.astype(int))
    return np.array(rows)


def expected_order(counts: list[int], *, batch_size: int, seed: int, epoch: int, shuffle_rows: int) -> list[list[int]]:
    """The order of an epoch, written out row by row from its definition."""
    streams = num_streams(batch_size)
    per_stream, window = batch_size // streams, window_rows(batch_size, shuffle_rows)
    first_row = np.concatenate([[1], 1 + np.cumsum(counts)])
    seeds = stream_seeds(seed=seed, epoch=epoch, num_streams=streams)
    queues = []
    for stream, segments in enumerate(plan_epoch(counts, seed=seed, epoch=epoch, num_streams=streams)):
        rows = [int(first_row[part.shard]) + part.start + place for part in segments for place in range(part.count)]
        queue = []
        for start in range(0, len(rows), window):
            block = list(enumerate(rows))[start : start + window]
            if shuffle_rows:
                block.sort(key=lambda entry: int(shuffle_keys(seeds[stream], np.array([entry[0]]))[0]))
            queue += [row for _, row in block]
        queues.append(queue)
    steps = -(-sum(counts) // batch_size)
    order = []
    for step in range(steps):
        batch = []
        for queue in queues:
            part = queue[step * per_stream : (step + 1) * per_stream]
            batch += part + [0] * (per_stream - len(part))
        order.append(batch)
    return order


@pytest.mark.parametrize(("batch_size", "shuffle_rows"), [(16, 0), (16, 48), (12, 30), (7, 21), (200, 400)])
def test_training_order_is_the_one_of_the_definition(dataset: Dataset, batch_size: int, shuffle_rows: int) -> None:
    options: dict[str, Any] = {"batch_size": batch_size, "seed": 4, "epoch": 2, "shuffle_rows": shuffle_rows}
    found = numbers(training_batches(dataset, "train", **options))
    assert found.tolist() == expected_order(COUNTS, **options)
    assert sorted(found[found > 0]) == list(range(1, sum(COUNTS) + 1))


def test_a_start_within_the_epoch_gives_the_tail_of_a_whole_pass(dataset: Dataset) -> None:
    options: dict[str, Any] = {"batch_size": 6, "seed": 1, "epoch": 0, "shuffle_rows": 18}
    whole = numbers(training_batches(dataset, "train", **options))
    for start in (1, 5, 11, 12):
        tail = numbers(training_batches(dataset, "train", **options, start_step=start))
        assert tail.tolist() == whole[start:].tolist()


def test_padding_for_replicas_adds_only_blank_rows(dataset: Dataset) -> None:
    options: dict[str, Any] = {"batch_size": 16, "seed": 1, "epoch": 0}
    plain = numbers(training_batches(dataset, "train", **options))
    padded = numbers(training_batches(dataset, "train", **options, multiple_of=3))
    assert padded.shape == (5, 18)
    assert padded[:, :16].tolist() == plain.tolist()
    assert (padded[:, 16:] == 0).all()


def test_epochs_and_seeds_differ(dataset: Dataset) -> None:
    def order(seed: int, epoch: int) -> list[list[int]]:
        return numbers(
            training_batches(dataset, "train", batch_size=16, seed=seed, epoch=epoch, shuffle_rows=32)
        ).tolist()

    first = order(0, 0)
    assert order(0, 0) == first
    assert order(0, 1) != first
    assert order(1, 0) != first


def test_shapes_are_static_and_as_specified(dataset: Dataset) -> None:
    batches = training_batches(dataset, "train", batch_size=16, multiple_of=3, seed=0, epoch=0)
    assert batches.element_spec == batch_spec(SCHEMA, num_rows=18)
    assert batches.element_spec["list/tags"] == tf.TensorSpec([18, 3], tf.int64)


def test_evaluation_reads_each_row_once_in_record_order(dataset: Dataset) -> None:
    rows, shapes = [], set()
    for count, batch in evaluation_batches(dataset, "train", batch_size=9):
        rows += batch["dense"].numpy()[: int(count), 0].astype(int).tolist()
        shapes.add(batch["ids"].shape.as_list()[0])
        assert (batch["weight"].numpy()[int(count) :] == 0).all()
    assert rows == list(range(1, 72))
    assert shapes == {9}


def test_a_blank_record_is_all_zero() -> None:
    batch = parse_batch(tf.constant([blank_record(SCHEMA)]), SCHEMA)
    shapes = {name: value.shape.as_list() for name, value in batch.items()}
    assert shapes == {"ids": [1, 2], "list/tags": [1, 3], "dense": [1, 1], "labels": [1, 1], "weight": [1, 1]}
    assert all((value.numpy() == 0).all() for value in batch.values())


def lying_dataset(folder: Path, claimed: int) -> Dataset:
    honest = numbered_dataset(folder, [20]).splits["train"][0]
    shard = Shard(**{**honest.model_dump(), "num_rows": claimed})
    return Dataset(folder=folder, schema=SCHEMA, splits={"train": (shard,)})


def test_a_shard_shorter_than_its_manifest_stops_training(tmp_path: Path) -> None:
    dataset = lying_dataset(tmp_path, claimed=21)
    with pytest.raises(CorruptError, match="fewer records than its manifest says"), reading(dataset, "train"):
        numbers(training_batches(dataset, "train", batch_size=4, seed=0, epoch=0))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    dataset = numbered_dataset(tmp_path, [5, 5])
    os.remove(tmp_path / "numbered-1.tfrecord")
    with pytest.raises(CorruptError, match=r"a file is missing.*numbered-1\.tfrecord"), reading(dataset, "train"):
        numbers(training_batches(dataset, "train", batch_size=4, seed=0, epoch=0))


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    dataset = numbered_dataset(tmp_path, [5])
    path = tmp_path / "numbered-0.tfrecord"
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(CorruptError, match="a record is damaged"), reading(dataset, "train"):
        numbers(training_batches(dataset, "train", batch_size=4, seed=0, epoch=0))


def test_a_record_of_another_kind_is_refused(tmp_path: Path) -> None:
    shard = write_shard(tmp_path, "other", [b"\xff\xfe not an example"])
    dataset = Dataset(folder=tmp_path, schema=SCHEMA, splits={"train": (shard,)})
    with pytest.raises(CorruptError, match=r"not a tf\.Example"), reading(dataset, "train"):
        numbers(training_batches(dataset, "train", batch_size=4, seed=0, epoch=0))


def test_other_errors_of_tensorflow_pass(dataset: Dataset) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError), reading(dataset, "train"):
        tf.reshape(tf.zeros([3]), [2])


@pytest.mark.parametrize(
    ("batch_size", "workers", "replicas"), [(16, 2, 2), (16, 3, 6), (7, 2, 4), (12, 5, 5), (1, 2, 2)]
)
def test_the_shares_of_the_workers_are_the_global_batch(
    dataset: Dataset, batch_size: int, workers: int, replicas: int
) -> None:
    options: dict[str, Any] = {"batch_size": batch_size, "seed": 3, "epoch": 1, "shuffle_rows": 40}
    whole = numbers(training_batches(dataset, "train", **options, multiple_of=replicas, start_step=2))
    parts = [
        numbers(
            training_batches(
                dataset, "train", **options, multiple_of=replicas, start_step=2, share=Share(index, workers)
            )
        )
        for index in range(workers)
    ]
    assert {part.shape for part in parts} == {(len(whole), whole.shape[1] // workers)}  # all do the same steps
    assert np.concatenate(parts, axis=1).tolist() == whole.tolist()


def test_a_worker_reads_only_the_streams_that_it_has_rows_of(dataset: Dataset) -> None:
    records = training_records(dataset, "train", batch_size=16, seed=0, epoch=0, share=Share(1, 4))
    assert records.element_spec == tf.TensorSpec([4], tf.string)


def test_shares_of_evaluation_batches_are_their_rows_in_order(dataset: Dataset) -> None:
    parts: list[list[int]] = [[], []]
    for index in (0, 1):
        for count, batch in evaluation_batches(dataset, "train", batch_size=9, multiple_of=2, share=Share(index, 2)):
            assert int(count) in (9, 71 % 9)
            parts[index].append(batch["dense"].numpy()[:, 0].astype(int).tolist())
    rows = [row for first, second in zip(*parts, strict=True) for row in (first + second)]
    assert [row for row in rows if row] == list(range(1, 72))
