"""Rows as a request carries them: markers in place of missing values, lists padded by them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from preprocessing.raw_values import raw_tensors
from preprocessing.schema import MISSING_INT64, MISSING_STRING, DatasetSchema, RawColumn

SCHEMA = DatasetSchema(
    raw_columns=(
        RawColumn(name="word", dtype="string"),
        RawColumn(name="words", dtype="string", length=3),
        RawColumn(name="numbers", dtype="int64", length=2),
        RawColumn(name="price", dtype="float32"),
    ),
    labels=("click",),
)


def test_missing_values_become_markers_and_short_lists_are_padded_with_them() -> None:
    table = pa.table(
        {
            "word": pa.array([b"", None, b"a\x00"], pa.binary()),
            "words": pa.array([[b"x", None, b"y", b"cut"], None, [b""]], pa.list_(pa.binary())),
            "numbers": pa.array([[7], [], None], pa.list_(pa.int64())),
            "price": pa.array([1.5, None, float("nan")], pa.float64()),
        }
    )
    raw = raw_tensors(table, SCHEMA.raw_columns)
    assert raw["word"].tolist() == [b"", MISSING_STRING, b"a\x00"]
    assert raw["words"].tolist() == [
        [b"x", MISSING_STRING, b"y"],
        [MISSING_STRING] * 3,
        [b"", MISSING_STRING, MISSING_STRING],
    ]
    assert raw["numbers"].tolist() == [[7, MISSING_INT64], [MISSING_INT64] * 2, [MISSING_INT64] * 2]
    assert raw["price"].dtype == np.float32
    assert raw["price"][0] == 1.5
    assert np.isnan(raw["price"][1:]).all()
