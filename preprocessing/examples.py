"""Encoded columns to `tf.Example` records in a TFRecord file, by numpy alone: no message object, no loop over rows.

`N` rows, `F` id fields, `D` dense inputs, `L` list length, `K` labels.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing.record_bytes import encode_rows, record_size
from preprocessing.record_layout import RecordLayout, record_layout
from preprocessing.schema import DENSE_KEY, IDS_KEY, LABELS_KEY, LIST_PREFIX, WEIGHT_KEY, DatasetSchema

__all__ = ["Encoded", "encode_records", "feature_spec", "record_bytes", "write_records"]

_BLOCK_BYTES = 1 << 21  # about what a core caches; less costs more in calls than it saves


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Model inputs of rows.

    Attributes:
        schema: of the dataset they belong to.
        ids: int64 [N, F].
        dense: float32 [N, D].
        lists: int64 [N, L] by feature name.
        labels: float32 [N, K].
        weight: float32 [N].
    """

    schema: DatasetSchema
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
            schema=self.schema,
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


@functools.lru_cache(maxsize=8)
def _layout(schema: DatasetSchema) -> RecordLayout:
    rows = {table.name: table.num_rows for table in schema.tables}
    lists = {LIST_PREFIX + field.name: [rows[field.table] - 1] * field.length for field in schema.list_fields}
    return record_layout(
        {DENSE_KEY: len(schema.dense), LABELS_KEY: len(schema.labels), WEIGHT_KEY: 1},
        {IDS_KEY: [rows[field.table] - 1 for field in schema.id_fields], **lists},
    )


def record_bytes(schema: DatasetSchema) -> int:
    """Returns the bytes of a record; record i of a file begins at i times as many."""
    return record_size(_layout(schema))


def write_records(path: Path, encoded: Encoded) -> int:
    """Writes one record a row, in order, and returns their number.

    Raises:
        DataError: if an id is outside its table.
    """
    block_rows = max(1, _BLOCK_BYTES // record_bytes(encoded.schema))
    with path.open("wb") as file:
        for start in range(0, len(encoded), block_rows):
            file.write(encode_records(encoded.rows(start, start + block_rows)).data)
    return len(encoded)


def encode_records(encoded: Encoded) -> npt.NDArray[np.uint8]:
    """Returns uint8 [N, record size]: the TFRecords of rows.

    Raises:
        DataError: if an id is outside its table.
    """
    return encode_rows(
        _layout(encoded.schema),
        {DENSE_KEY: encoded.dense, LABELS_KEY: encoded.labels, WEIGHT_KEY: encoded.weight[:, None]},
        {IDS_KEY: encoded.ids, **{LIST_PREFIX + name: ids for name, ids in encoded.lists.items()}},
    )
