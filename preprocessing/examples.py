"""Encoded columns to `tf.Example` records in a TFRecord file, by numpy alone: no message object, no loop over rows.

`N` rows, `F` id fields, `D` dense inputs, `L` list length, `K` labels.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.crc32c import crc32c_rows, mask_crc
from preprocessing.record_layout import assemble, example_parts
from preprocessing.schema import DENSE_KEY, IDS_KEY, LABELS_KEY, LIST_PREFIX, WEIGHT_KEY, DatasetSchema

__all__ = ["Encoded", "encode_records", "feature_spec", "write_records"]

# A TFRecord is: length uint64, masked CRC of the length, content, masked CRC of the content.
_HEAD, _TAIL = 12, 4
_BLOCK_BYTES = 1 << 21  # a block's matrix stays in a core's cache
_MAX_BLOCK_ROWS = 8192


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Model inputs of rows.

    Attributes:
        ids: int64 [N, F].
        dense: float32 [N, D].
        lists: int64 [N, L] by feature name.
        labels: float32 [N, K].
        weight: float32 [N].
    """

    ids: npt.NDArray[np.int64]
    dense: npt.NDArray[np.float32]
    lists: dict[str, npt.NDArray[np.int64]]
    labels: npt.NDArray[np.float32]
    weight: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.weight)

    def rows(self, start: int, stop: int) -> Encoded:
        """Returns some of the rows."""
        part = slice(start, stop)
        return Encoded(
            ids=self.ids[part],
            dense=self.dense[part],
            lists={name: ids[part] for name, ids in self.lists.items()},
            labels=self.labels[part],
            weight=self.weight[part],
        )


def feature_spec(schema: DatasetSchema) -> dict[str, Any]:
    """Returns what `tf.io.parse_example` needs to read the records."""
    import tensorflow as tf

    lengths: dict[str, tuple[int, Any]] = {
        IDS_KEY: (len(schema.id_fields), tf.int64),
        **{LIST_PREFIX + field.name: (field.length, tf.int64) for field in schema.list_fields},
        DENSE_KEY: (len(schema.dense), tf.float32),
        LABELS_KEY: (len(schema.labels), tf.float32),
        WEIGHT_KEY: (1, tf.float32),
    }
    return {key: tf.io.FixedLenFeature([length], dtype) for key, (length, dtype) in lengths.items() if length}


def write_records(path: Path, encoded: Encoded) -> int:
    """Writes one record a row, in order, and returns their number."""
    num_values = sum(ids.shape[1] for ids in encoded.lists.values()) + encoded.ids.shape[1]
    row_bytes = 128 + 4 * (encoded.dense.shape[1] + encoded.labels.shape[1]) + 4 * num_values
    block_rows = max(1, min(_MAX_BLOCK_ROWS, _BLOCK_BYTES // row_bytes))
    with path.open("wb") as file:
        for start in range(0, len(encoded), block_rows):
            file.write(encode_records(encoded.rows(start, start + block_rows)).data)
    return len(encoded)


def encode_records(encoded: Encoded) -> npt.NDArray[np.uint8]:
    """Returns the TFRecords of rows, one after another."""
    if len(encoded) == 0:
        return np.zeros(0, np.uint8)
    message = example_parts(
        {DENSE_KEY: encoded.dense, LABELS_KEY: encoded.labels, WEIGHT_KEY: encoded.weight[:, None]},
        {IDS_KEY: encoded.ids, **{LIST_PREFIX + name: ids for name, ids in encoded.lists.items()}},
    )
    content = assemble(message, head=_HEAD, tail=_TAIL)
    _frame(content, message.sizes)
    return content


def _frame(content: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64]) -> None:
    """Fills in lengths and checksums around messages of `sizes` bytes, in place."""
    ends = np.cumsum(sizes + (_HEAD + _TAIL)) - _TAIL
    crc = mask_crc(crc32c_rows(_aligned(content, ends, sizes), sizes))
    _put(content, ends, crc.astype("<u4"))
    distinct, inverse = np.unique(sizes, return_inverse=True)
    lengths = distinct.astype("<u8").view(np.uint8).reshape(-1, 8)
    length_crc = mask_crc(crc32c_rows(lengths, np.full(len(lengths), 8)))
    starts = ends - sizes - _HEAD
    _put(content, starts, sizes.astype("<u8"))
    _put(content, starts + 8, length_crc[inverse].astype("<u4"))


def _put(content: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> None:
    """Writes the bytes of value i at `starts[i]`."""
    width = values.dtype.itemsize
    content[starts[:, None] + np.arange(width)] = values.view(np.uint8).reshape(-1, width)


def _aligned(
    content: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """Returns [N, W] messages that end at the last column, zeros before them; W is a multiple of 4."""
    width = int(-(-sizes.max() // 4) * 4)
    padded = np.concatenate([np.zeros(width, np.uint8), content])
    windows = np.lib.stride_tricks.sliding_window_view(padded, width)
    rows = windows[ends]  # starts at ends - width of content
    margin = width - int(sizes.min())
    foreign = (width - sizes).astype(np.int32)
    rows[:, :margin] *= np.arange(margin, dtype=np.int32) >= foreign[:, None]
    return rows
