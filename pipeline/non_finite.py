"""Where a loss that is not finite came from: the first tensor that was not, and the records of its batch.

Which records a step read follows from the plan of the epoch, so nothing is kept of them while training goes well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline.epochs import Segment, num_streams, plan_epoch, shuffle_keys, stream_seeds, window_rows
from pipeline.records import parse_batch, record_paths
from preprocessing.dataset import Dataset
from preprocessing.schema import DENSE_KEY, LABELS_KEY, WEIGHT_KEY

__all__ = ["BatchRecords", "batch_records", "first_suspect", "told"]

_MOST_FILES = 3


@dataclasses.dataclass(frozen=True)
class BatchRecords:
    """The records of one global batch: for each shard, by its number, the places of its records in it, rising."""

    dataset: Dataset
    split: str
    rows: dict[int, tuple[int, ...]]

    def files(self) -> str:
        """Returns the names of the shards, some of them if they are many."""
        paths = record_paths(self.dataset, self.split)
        names = [paths[shard] for shard in sorted(self.rows)]
        more = f" and {len(names) - _MOST_FILES} more files" if len(names) > _MOST_FILES else ""
        return ", ".join(names[:_MOST_FILES]) + more

    def not_finite(self) -> str | None:
        """Returns where the first record with an input that is not finite is, and which; None if there is none."""
        paths = record_paths(self.dataset, self.split)
        for shard, places in sorted(self.rows.items()):
            wanted = set(places)
            records = tf.data.TFRecordDataset(paths[shard]).take(max(places) + 1)
            kept = [record.numpy() for i, record in enumerate(records) if i in wanted]
            for place, name in self._wrong(kept, places):
                return f"{name} of record {place} (from 0) of {paths[shard]}"
        return None

    def _wrong(self, records: Sequence[bytes], places: Sequence[int]) -> Iterator[tuple[int, str]]:
        schema = self.dataset.schema
        batch = parse_batch(tf.constant(records, tf.string), schema)
        names = {
            DENSE_KEY: [f"dense input {name!r}" for name in schema.dense],
            LABELS_KEY: [f"label {name!r}" for name in schema.labels],
            WEIGHT_KEY: ["the sample weight"],
        }
        for key, columns in names.items():
            if key in batch:
                for row, column in np.argwhere(~np.isfinite(batch[key].numpy())):
                    yield places[row], columns[column]


def batch_records(
    dataset: Dataset, split: str, *, batch_size: int, seed: int, epoch: int, step: int, shuffle_rows: int
) -> BatchRecords:
    """Returns which records `records.training_records` puts into the batch of one step of an epoch."""
    streams, window = num_streams(batch_size), window_rows(batch_size, shuffle_rows)
    per_stream = batch_size // streams
    plan = plan_epoch([shard.num_rows for shard in dataset.splits[split]], seed=seed, epoch=epoch, num_streams=streams)
    seeds = stream_seeds(seed=seed, epoch=epoch, num_streams=streams)
    number, first = divmod(step * per_stream, window)
    found: dict[int, list[int]] = {}
    for stream, segments in enumerate(plan):
        size = sum(segment.count for segment in segments)
        places = np.arange(number * window, min((number + 1) * window, size), dtype=np.int64)
        if shuffle_rows:
            places = places[np.argsort(shuffle_keys(seeds[stream], places), kind="stable")]
        for shard, row in _located(segments, places[first : first + per_stream]):
            found.setdefault(shard, []).append(row)
    return BatchRecords(dataset, split, {shard: tuple(sorted(rows)) for shard, rows in found.items()})


def _located(segments: Sequence[Segment], places: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yields shard and row of places in a stream."""
    ends = np.cumsum([segment.count for segment in segments])
    for place, index in zip(places, np.searchsorted(ends, places, side="right"), strict=True):
        segment = segments[index]
        yield segment.shard, int(segment.start + place - (ends[index] - segment.count))


def first_suspect(names: Sequence[str], flags: npt.NDArray[np.float64]) -> str:
    """Returns the first of the names whose flag is set; without any it is what comes after all of them."""
    wrong = np.flatnonzero(flags)
    return names[wrong[0]] if wrong.size else "the logits (inputs, looked-up rows and weights are finite)"


def told(records: BatchRecords, suspect: str) -> str:
    """Returns what is known, as a part of a sentence."""
    first = records.not_finite() or suspect  # an input comes before all else, and its place says more than its name
    return f"the first tensor that is not finite is {first}; the batch was read from {records.files()}"
