"""The columnar shuffle on Beam's in-process runner: nothing lost, nothing doubled, partitions told by the day alone."""

from __future__ import annotations

import json
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from preprocessing.columnar import hash_rows
from preprocessing.errors import SourceError
from preprocessing.runner import RecordBatchCoder, local_pipeline, plain_errors
from preprocessing.shuffle import BUCKETS, Carrier, ColumnarShuffle, Partition, num_partitions, read_slices

SCHEMA = pa.schema([("day", pa.int64()), ("key", pa.binary()), ("value", pa.int64())])


def batches_of(days: dict[int, int], *, batch_rows: int = 700) -> list[tuple[str, pa.RecordBatch]]:
    rng = np.random.default_rng(1)
    day = np.concatenate([np.full(count, number) for number, count in days.items()])
    rng.shuffle(day)
    table = pa.table(
        {
            "day": day,
            "key": pa.array([f"k{value % 97}".encode() for value in range(len(day))], pa.binary()),
            "value": np.arange(len(day)),
        },
        schema=SCHEMA,
    )
    return [("log", batch) for batch in table.to_batches(max_chunksize=batch_rows)]


def by_day_and_key(_source: str, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
    return batch, batch.column("day").to_numpy(), hash_rows(batch, ["key"])


def to_json(partition: Partition) -> str:
    rows = read_slices(partition.slices, source="log", schema=SCHEMA)
    content = [partition.group, partition.index, sorted(rows["value"].to_pylist())]
    keys = sorted({value.decode() for value in rows["key"].to_pylist()})
    return json.dumps([*content, keys])


def shuffle(
    days: dict[int, int], folder: Path, *, carrier: Carrier = "files", rows: int = 1000, batch_rows: int = 700
) -> dict[tuple[int, int], tuple[list[int], list[str]]]:
    folder.mkdir()
    with local_pipeline(workers=2) as p:
        _ = (
            p
            | beam.Create(batches_of(days, batch_rows=batch_rows))
            | ColumnarShuffle(
                group_by=by_day_and_key, sized_by="log", rows_per_partition=rows, carrier=carrier, folder=folder
            )
            | beam.Map(to_json)
            | beam.io.WriteToText(str(folder / "out"), shard_name_template="")
        )
    lines = (folder / "out").read_text().splitlines()
    return {(group, index): (values, keys) for group, index, values, keys in map(json.loads, lines)}


@pytest.mark.parametrize("carrier", ["files", "bytes"])
def test_every_row_arrives_once_with_all_rows_of_its_key(tmp_path: Path, carrier: Carrier) -> None:
    found = shuffle({1: 3000, 2: 500}, tmp_path / "a", carrier=carrier)
    assert sorted(value for values, _ in found.values() for value in values) == list(range(3500))
    first_day = [set(keys) for (group, _), (_, keys) in found.items() if group == 1]
    assert len(first_day) == 3
    assert sum(len(keys) for keys in first_day) == len(set.union(*first_day))


def test_partitions_of_a_day_do_not_depend_on_other_days_or_on_batches(tmp_path: Path) -> None:
    together = shuffle({1: 3000, 2: 500}, tmp_path / "a")
    finer = shuffle({1: 3000, 2: 500}, tmp_path / "b", batch_rows=130)
    assert finer == together
    alone = shuffle({1: 3000}, tmp_path / "c")
    assert [len(keys) for _, (_, keys) in sorted(alone.items())] == [
        len(keys) for (group, _), (_, keys) in sorted(together.items()) if group == 1
    ]


@pytest.mark.parametrize(("rows", "expected"), [(0, 1), (1, 1), (1000, 1), (1001, 2), (10**9, BUCKETS)])
def test_the_number_of_partitions_follows_the_rows(rows: int, expected: int) -> None:
    assert num_partitions(rows, 1000) == expected


def test_a_batch_survives_its_coder() -> None:
    (_, batch), *_ = batches_of({1: 10})
    piece = batch.slice(3, 4)
    assert RecordBatchCoder().decode(RecordBatchCoder().encode(piece)).equals(piece)


def _fail(_: int) -> None:
    raise SourceError("log.csv: no column 'a'\nthere are: b")


def _fill_disk(_: int) -> None:
    raise OSError(28, "No space left on device")


def test_an_error_in_a_worker_comes_back_as_itself() -> None:
    with (
        pytest.raises(SourceError, match=r"^log\.csv: no column 'a'\nthere are: b$"),
        plain_errors(),
        local_pipeline() as p,
    ):
        _ = p | beam.Create([1]) | beam.Map(_fail)
    with pytest.raises(OSError, match="No space left on device"), plain_errors(), local_pipeline() as p:
        _ = p | beam.Create([1]) | beam.Map(_fill_disk)
