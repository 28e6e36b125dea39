"""Record shards to batches of tensors, by tf.data.

Training reads the streams of `epochs.plan_epoch` and shuffles serialised records in windows; evaluation reads rows in
record order. Both fill the last batch with blank records of weight zero, so that shapes are static, and parse a whole
batch at once (measured: 15 times the rate of parsing row by row). A worker among several takes its share of each
global batch: which rows those are follows from arithmetic, so workers agree without a word.

Shapes: S streams, B rows of a global batch, P rows of it once padded, W rows of a window.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline.epochs import (
    GOLDEN,
    MIX_1,
    MIX_2,
    Segment,
    num_steps,
    num_streams,
    plan_epoch,
    skip_rows,
    stream_seeds,
    window_rows,
)
from pipeline.record_faults import SHORT_SHARD
from preprocessing.dataset import Dataset
from preprocessing.examples import feature_spec
from preprocessing.schema import DatasetSchema

__all__ = [
    "WHOLE",
    "Share",
    "batch_spec",
    "blank_record",
    "evaluation_batches",
    "evaluation_records",
    "padded_batch_size",
    "parse_batch",
    "record_paths",
    "training_batches",
    "training_records",
]

# Autotuning costs more than it finds here: 1.3 us a record, a third of the time of reading one.
PARALLEL_CALLS = 2
PREFETCHED_BATCHES = 4
READ_BYTES = 1 << 20

_LAST = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class Share:
    """One of `count` equal parts of each batch: what a worker trains on."""

    index: int
    count: int


WHOLE = Share(0, 1)


def training_batches(
    dataset: Dataset,
    split: str,
    *,
    batch_size: int,
    multiple_of: int = 1,
    seed: int,
    epoch: int,
    shuffle_rows: int = 0,
    start_step: int = 0,
    share: Share = WHOLE,
) -> tf.data.Dataset:
    """Returns the parsed `share` of the batches that `training_records` gives."""
    return _with_options(
        training_records(
            dataset,
            split,
            batch_size=batch_size,
            multiple_of=multiple_of,
            seed=seed,
            epoch=epoch,
            shuffle_rows=shuffle_rows,
            start_step=start_step,
            share=share,
        )
        .map(lambda records: parse_batch(records, dataset.schema), num_parallel_calls=PARALLEL_CALLS)
        .prefetch(PREFETCHED_BATCHES)
    )


def training_records(
    dataset: Dataset,
    split: str,
    *,
    batch_size: int,
    multiple_of: int = 1,
    seed: int,
    epoch: int,
    shuffle_rows: int = 0,
    start_step: int = 0,
    share: Share = WHOLE,
) -> tf.data.Dataset:
    """Returns serialised global batches [P] of one epoch from `start_step` on, padded to a multiple of `multiple_of`.

    With a `share`, only its rows [P / count], in their order; only the streams with such rows are read. Rows before
    the window of `start_step` are skipped unparsed, so a late start is cheap. A shard with fewer records than the
    manifest says raises `tf.errors.InvalidArgumentError` where it is read.
    """
    streams, window = num_streams(batch_size), window_rows(batch_size, shuffle_rows)
    per_stream = batch_size // streams
    first_window, first_row = divmod(start_step * per_stream, window)
    rows = [shard.num_rows for shard in dataset.splits[split]]
    plan = plan_epoch(rows, seed=seed, epoch=epoch, num_streams=streams)
    seeds = stream_seeds(seed=seed, epoch=epoch, num_streams=streams) if shuffle_rows else None
    width = padded_batch_size(batch_size, multiple_of=multiple_of)
    blank = blank_record(dataset.schema)
    mine = _rows_of(share, width)
    used = slice(min(mine.start // per_stream, streams - 1), min(-(-mine.stop // per_stream), streams))
    first = used.start * per_stream
    kept = slice(mine.start - first, mine.stop - first)

    def to_batches(index: tf.Tensor, counts: tf.Tensor, records: tf.Tensor) -> tf.Tensor:
        order = _window_order(index[0], counts, seeds=None if seeds is None else seeds[used], window=window)
        batches = _cut(records, order, per_stream=per_stream)
        filler = tf.fill([window // per_stream, width - batch_size], blank)
        return tf.concat([batches, filler], axis=1)[:, kept]

    return _with_options(
        _windows(record_paths(dataset, split), plan, used=used, window=window, first=first_window, blank=blank)
        .batch(used.stop - used.start, drop_remainder=True)
        .map(to_batches)
        .prefetch(1)
        .unbatch()
        .skip(first_row // per_stream)
        .take(max(0, num_steps(sum(rows), batch_size) - start_step))
    )


def evaluation_batches(
    dataset: Dataset, split: str, *, batch_size: int, multiple_of: int = 1, share: Share = WHOLE
) -> tf.data.Dataset:
    """Returns (number of true rows, parsed batch) of every record of a split, in record order.

    With a `share`, the number is of the whole batch all the same, and the batch its rows of it.
    """
    records = evaluation_records(dataset, split, batch_size=batch_size, multiple_of=multiple_of, share=share)
    return _with_options(
        records.map(
            lambda count, batch: (count, parse_batch(batch, dataset.schema)), num_parallel_calls=PARALLEL_CALLS
        ).prefetch(PREFETCHED_BATCHES)
    )


def evaluation_records(
    dataset: Dataset, split: str, *, batch_size: int, multiple_of: int = 1, share: Share = WHOLE
) -> tf.data.Dataset:
    """Returns the same as `evaluation_batches`, the records serialised."""
    blank = blank_record(dataset.schema)
    width = padded_batch_size(batch_size, multiple_of=multiple_of)
    mine = _rows_of(share, width)

    def padded(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.size(records, tf.int64), _padded(records, width, blank=blank)[mine]

    return _with_options(
        tf.data.TFRecordDataset(record_paths(dataset, split), buffer_size=READ_BYTES).batch(batch_size).map(padded)
    )


def _rows_of(share: Share, width: int) -> slice:
    """Returns the rows of a padded global batch that a share is."""
    return slice(share.index * width // share.count, (share.index + 1) * width // share.count)


def record_paths(dataset: Dataset, split: str) -> list[str]:
    """Returns the record files of a split, in order."""
    return [str(Path(dataset.folder) / shard.records) for shard in dataset.splits.get(split, ())]


def parse_batch(records: tf.Tensor, schema: DatasetSchema) -> dict[str, tf.Tensor]:
    """Returns the tensors of serialised records [B]; without dense inputs or ids there is no such key."""
    parsed: dict[str, tf.Tensor] = tf.io.parse_example(records, feature_spec(schema))
    return parsed


def padded_batch_size(batch_size: int, *, multiple_of: int) -> int:
    """Returns the rows of a global batch once padded so that replicas share it equally."""
    return math.ceil(batch_size / multiple_of) * multiple_of


def batch_spec(schema: DatasetSchema, *, num_rows: int) -> dict[str, tf.TensorSpec]:
    """Returns the shapes and types of a parsed batch."""
    return {
        key: tf.TensorSpec([num_rows, *feature.shape], feature.dtype) for key, feature in feature_spec(schema).items()
    }


def blank_record(schema: DatasetSchema) -> bytes:
    """Returns a record whose every id and number is 0, its weight too."""
    feature = {
        key: tf.train.Feature(float_list=tf.train.FloatList(value=np.zeros(spec.shape)))
        if spec.dtype == tf.float32
        else tf.train.Feature(int64_list=tf.train.Int64List(value=np.zeros(spec.shape, np.int64)))
        for key, spec in feature_spec(schema).items()
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def _windows(
    paths: Sequence[str], plan: Sequence[Sequence[Segment]], *, used: slice, window: int, first: int, blank: bytes
) -> tf.data.Dataset:
    """Returns (index, true rows, records [W]): window `first` of each used stream, then the next, and so on."""
    sizes = np.array([sum(segment.count for segment in segments) for segments in plan], np.int64)
    last = -(-int(sizes.max()) // window)
    left = [skip_rows(segments, first * window) for segments in plan]
    table = _SegmentTable(paths, left)

    def windows(stream: tf.Tensor) -> tf.data.Dataset:
        empty = tf.data.Dataset.from_tensors(tf.constant([], tf.string)).repeat()
        blocks = table.records(stream).batch(window).concatenate(empty)
        counts = tf.clip_by_value(
            tf.constant(sizes)[stream] - tf.range(first, last, dtype=tf.int64) * window, 0, window
        )
        numbers = tf.data.Dataset.from_tensor_slices((tf.range(first, last, dtype=tf.int64), counts))
        return tf.data.Dataset.zip((numbers, blocks)).map(_checked)

    def _checked(numbers: tuple[tf.Tensor, tf.Tensor], block: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        index, count = numbers
        check = tf.debugging.assert_equal(tf.size(block, tf.int64), count, message=SHORT_SHARD)
        with tf.control_dependencies([check]):
            return index, count, _padded(block, window, blank=blank)

    return tf.data.Dataset.range(used.start, used.stop).interleave(
        windows,
        cycle_length=used.stop - used.start,
        block_length=1,
        num_parallel_calls=min(PARALLEL_CALLS, used.stop - used.start),
        deterministic=True,
    )


class _SegmentTable:
    """The segments of all streams as tensors, so that one traced function reads any stream."""

    def __init__(self, paths: Sequence[str], plan: Sequence[Sequence[Segment]]) -> None:
        flat = [segment for segments in plan for segment in segments]
        self._paths = tf.constant([paths[segment.shard] for segment in flat], tf.string)
        self._starts = tf.constant([segment.start for segment in flat], tf.int64)
        self._counts = tf.constant([segment.count for segment in flat], tf.int64)
        self._bounds = tf.constant(np.cumsum([0, *(len(segments) for segments in plan)]), tf.int64)

    def records(self, stream: tf.Tensor) -> tf.data.Dataset:
        """Returns the serialised records of a stream."""
        rows = slice(self._bounds[stream], self._bounds[stream + 1])
        return tf.data.Dataset.from_tensor_slices((self._paths[rows], self._starts[rows], self._counts[rows])).flat_map(
            lambda path, start, count: tf.data.TFRecordDataset(path, buffer_size=READ_BYTES).skip(start).take(count)
        )


def _padded(records: tf.Tensor, length: int, *, blank: bytes) -> tf.Tensor:
    """Returns records filled up with blank ones, shape [length]."""
    missing = length - tf.size(records)
    filled = tf.cond(missing > 0, lambda: tf.concat([records, tf.fill([missing], blank)], axis=0), lambda: records)
    return tf.ensure_shape(filled, [length])


def _window_order(
    index: tf.Tensor, counts: tf.Tensor, *, seeds: npt.NDArray[np.uint64] | None, window: int
) -> tf.Tensor:
    """Returns the places in a window in the order they are used, int32 [S, W]; those past a stream's end come last.

    The arithmetic of `epochs.shuffle_keys`.
    """
    place = tf.range(window, dtype=tf.int64)
    if seeds is None:
        return tf.broadcast_to(tf.cast(place, tf.int32), [counts.shape[0], window])
    key = tf.constant(seeds)[:, tf.newaxis] + tf.cast(index * window + place, tf.uint64) * tf.constant(
        GOLDEN, tf.uint64
    )
    key = (key ^ _shifted(key, 30)) * tf.constant(MIX_1, tf.uint64)
    key = (key ^ _shifted(key, 27)) * tf.constant(MIX_2, tf.uint64)
    key = tf.cast(_shifted(key ^ _shifted(key, 31), 1), tf.int64)
    return tf.argsort(tf.where(place < counts[:, tf.newaxis], key, _LAST), axis=-1, stable=True)


def _shifted(value: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.right_shift(value, tf.constant(bits, tf.uint64))


def _cut(records: tf.Tensor, order: tf.Tensor, *, per_stream: int) -> tf.Tensor:
    """Returns global batches [W S / B, B] of a window's records [S, W]: `per_stream` of each stream in turn."""
    streams, window = records.shape
    flat = order + tf.range(streams, dtype=tf.int32)[:, tf.newaxis] * window
    places = tf.transpose(tf.reshape(flat, [streams, window // per_stream, per_stream]), [1, 0, 2])
    return tf.gather(tf.reshape(records, [-1]), tf.reshape(places, [window // per_stream, streams * per_stream]))


def _with_options(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the same data set, its order fixed whatever the number of threads."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = True
    return batches.with_options(options)
