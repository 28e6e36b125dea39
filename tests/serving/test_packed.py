"""The packed form: where columns go, that nothing is lost, and what cannot be packed."""

from __future__ import annotations

import numpy as np
import pytest

from preprocessing.errors import ServingError
from serving.packed import PackedColumn, PackedLayout, rows_to_packed
from serving.rows import InputColumn

COLUMNS = [
    InputColumn("user", "DT_STRING", (-1,)),
    InputColumn("price", "DT_FLOAT", (-1,)),
    InputColumn("past", "DT_STRING", (-1, 3)),
    InputColumn("time", "DT_INT64", (-1,)),
    InputColumn("ages", "DT_INT64", (-1, 2)),
]


def test_columns_of_a_dtype_are_in_the_order_of_their_names() -> None:
    assert PackedLayout.of(COLUMNS).matrices == {
        "strings": (PackedColumn("past", 0, 3), PackedColumn("user", 3, None)),
        "floats": (PackedColumn("price", 0, None),),
        "integers": (PackedColumn("ages", 0, 2), PackedColumn("time", 2, None)),
    }


def test_the_layout_does_not_depend_on_the_order_given() -> None:
    assert PackedLayout.of(COLUMNS[::-1]) == PackedLayout.of(COLUMNS)


def test_rows_become_matrices_with_markers_for_what_is_missing() -> None:
    rows = [{"user": "u", "price": 1.5, "past": ["a"], "time": 2**60, "ages": [1, 2, 3]}, {}]
    packed = rows_to_packed(rows, COLUMNS)
    assert packed["strings"].tolist() == [[b"a", b"\x00", b"\x00", b"u"], [b"\x00"] * 4]
    assert packed["integers"].tolist() == [[1, 2, 2**60], [-(2**63)] * 3]
    np.testing.assert_array_equal(packed["floats"], np.array([[1.5], [np.nan]], np.float32))
    assert {name: matrix.dtype for name, matrix in packed.items()} == {
        "strings": np.dtype(object),
        "floats": np.dtype(np.float32),
        "integers": np.dtype(np.int64),
    }


def test_unpacking_gives_back_the_columns() -> None:
    layout = PackedLayout.of(COLUMNS)
    arrays = {
        "user": np.array([b"x", b"y"], object),
        "price": np.array([1, 2], np.float32),
        "past": np.array([[b"1", b"2", b"3"], [b"4", b"5", b"6"]], object),
        "time": np.array([7, 8], np.int64),
        "ages": np.array([[1, 2], [3, 4]], np.int64),
    }
    found = layout.unpack(layout.pack(arrays))
    assert found.keys() == arrays.keys()
    for name, values in arrays.items():
        np.testing.assert_array_equal(found[name], values)


def test_a_matrix_without_columns_is_left_out() -> None:
    assert rows_to_packed([{"user": "u"}], COLUMNS[:1]).keys() == {"strings"}


def test_no_rows_are_matrices_without_rows() -> None:
    assert {name: matrix.shape for name, matrix in rows_to_packed([], COLUMNS).items()} == {
        "strings": (0, 4),
        "floats": (0, 1),
        "integers": (0, 3),
    }


@pytest.mark.parametrize("column", [InputColumn("flag", "DT_BOOL", (-1,)), InputColumn("open", "DT_FLOAT", (-1, -1))])
def test_what_no_matrix_can_hold_is_refused_by_name(column: InputColumn) -> None:
    with pytest.raises(ServingError, match=column.name):
        PackedLayout.of([column])
