"""Rows to arrays."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.errors import ServingError
from serving.rows import InputColumn, rows_to_arrays

_COLUMNS = [
    InputColumn("user", "DT_STRING", (-1,)),
    InputColumn("count", "DT_INT64", (-1,)),
    InputColumn("price", "DT_FLOAT", (-1,)),
    InputColumn("tags", "DT_STRING", (-1, 3)),
]


def test_absent_and_none_become_the_missing_marker_of_the_dtype() -> None:
    arrays = rows_to_arrays([{}, {"user": None, "count": None, "price": None, "tags": None}], _COLUMNS)
    assert arrays["user"].tolist() == [b"\x00", b"\x00"]
    assert arrays["count"].tolist() == [-(2**63)] * 2
    assert np.isnan(arrays["price"]).all()
    assert arrays["price"].dtype == np.float32
    assert arrays["tags"].tolist() == [[b"\x00"] * 3] * 2


def test_lists_are_padded_and_cut_to_the_width() -> None:
    arrays = rows_to_arrays([{"tags": ["a"]}, {"tags": ["a", None, "c", "d"]}, {"tags": []}], _COLUMNS)
    assert arrays["tags"].tolist() == [[b"a", b"\x00", b"\x00"], [b"a", b"\x00", b"c"], [b"\x00"] * 3]


def test_an_open_width_is_that_of_the_longest_list() -> None:
    arrays = rows_to_arrays([{"t": [1]}, {"t": [1, 2]}], [InputColumn("t", "DT_INT64", (-1, -1))])
    assert arrays["t"].tolist() == [[1, -(2**63)], [1, 2]]


def test_values_are_converted_by_the_dtype() -> None:
    rows = [{"user": 5, "count": "7", "price": "1.5"}, {"user": b"\xff", "count": 3.0, "price": 2}]
    arrays = rows_to_arrays(rows, _COLUMNS)
    assert arrays["user"].tolist() == [b"5", b"\xff"]
    assert arrays["count"].tolist() == [7, 3]
    assert arrays["price"].tolist() == [1.5, 2.0]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"user": 5.0}, "'user'"),
        ({"user": True}, "'user'"),
        ({"user": ["a"]}, "'user'"),
        ({"count": 1.5}, "fraction"),
        ({"count": "x"}, "'count'"),
        ({"count": 2**63}, "64 bits"),
        ({"price": "dear"}, "'price'"),
        ({"price": [1]}, "'price'"),
        ({"tags": "a"}, "a list was expected"),
        ({"prise": 1}, "nearest column: 'price'"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_column_named(row: Any, text: Any) -> None:
    with pytest.raises(ServingError, match=text):
        rows_to_arrays([row], _COLUMNS)


def test_unknown_keys_can_be_ignored() -> None:
    assert rows_to_arrays([{"user": "a", "junk": 1}], _COLUMNS, ignore_unknown=True)["user"].tolist() == [b"a"]


def test_no_rows_give_empty_arrays_of_the_right_width() -> None:
    arrays = rows_to_arrays([], _COLUMNS)
    assert (arrays["price"].shape, arrays["tags"].shape) == ((0,), (0, 3))


def test_a_column_without_a_marker_needs_its_value() -> None:
    with pytest.raises(ServingError, match="needs a value"):
        rows_to_arrays([{}], [InputColumn("flag", "DT_BOOL", (-1,))])


@given(st.lists(st.lists(st.text(max_size=3), max_size=5), max_size=5), st.integers(0, 4))
def test_every_list_keeps_its_first_values(lists: Any, width: Any) -> None:
    array = rows_to_arrays([{"t": items} for items in lists], [InputColumn("t", "DT_STRING", (-1, width))])["t"]
    assert array.shape == (len(lists), width)
    for row, items in zip(array.tolist(), lists, strict=True):
        kept = [item.encode() for item in items[:width]]
        assert row == kept + [b"\x00"] * (width - len(kept))
