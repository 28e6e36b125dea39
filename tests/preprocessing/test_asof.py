"""As-of joins against a walk over all rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.asof import find_as_of
from preprocessing.errors import DataError

USERS = st.sampled_from([b"a", b"b", b"c", None])
SIZES = st.sampled_from([1, 2, None])
EXTREMES = st.sampled_from([-(2**63), -(2**63) + 1, -1, 2**63 - 2, 2**63 - 1])
TIMES = st.one_of(st.none(), st.integers(0, 8), EXTREMES)
LEFT = st.lists(st.tuples(USERS, SIZES, TIMES), max_size=10)
RIGHT = st.lists(st.tuples(USERS, SIZES, TIMES, TIMES), max_size=14)


def left_table(rows: list[tuple[Any, ...]]) -> pa.Table:
    users, sizes, times = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {"user": pa.array(users, pa.binary()), "size": pa.array(sizes, pa.int64()), "t": pa.array(times, pa.int64())}
    )


def right_table(rows: list[tuple[Any, ...]]) -> pa.Table:
    table = left_table([row[:3] for row in rows]).rename_columns(["user", "size", "from"])
    return table.append_column("arrived", pa.array([row[3] for row in rows], pa.int64()))


def by_definition(left: list[Any], right: list[Any], *, num_keys: int, with_arrival: bool) -> list[int]:
    result = []
    for row in left:
        best = -1
        for i, other in enumerate(right):
            start, arrival = other[2], other[3] if with_arrival else other[2]
            if None in (*row[:num_keys], row[2], start, arrival) or row[:num_keys] != other[:num_keys]:
                continue
            if max(start, arrival) < row[2] and (best < 0 or start >= right[best][2]):
                best = i
        result.append(best)
    return result


@settings(deadline=None, max_examples=150)
@given(left=LEFT, right=RIGHT, num_keys=st.sampled_from([1, 2]), with_arrival=st.booleans())
def test_it_equals_the_definition(left: list[Any], right: list[Any], num_keys: int, with_arrival: bool) -> None:
    found = find_as_of(
        left_table(left),
        right_table(right),
        on=("user", "size")[:num_keys],
        left_time="t",
        valid_from="from",
        arrival="arrived" if with_arrival else None,
    )
    assert found.tolist() == by_definition(left, right, num_keys=num_keys, with_arrival=with_arrival)


def test_a_price_holds_from_just_after_it_was_valid_and_known() -> None:
    left = left_table([(b"a", 1, time) for time in (10, 11, 20, 21, 26, 31)])
    # The second price was announced late; the third, valid before it, was announced later still and never holds.
    right = right_table([(b"a", 1, 10, 5), (b"a", 1, 20, 25), (b"a", 1, 15, 30)])
    found = find_as_of(left, right, on=["user"], left_time="t", valid_from="from", arrival="arrived")
    assert found.tolist() == [-1, 0, 0, 0, 1, 1]


def test_of_equal_starts_the_last_row_of_the_table_holds() -> None:
    left = left_table([(b"a", 1, 9)])
    right = right_table([(b"a", 1, 3, 4), (b"a", 1, 3, 8), (b"a", 1, 3, 3)])
    found = find_as_of(left, right, on=["user"], left_time="t", valid_from="from", arrival="arrived")
    assert found.tolist() == [2]


def test_tables_without_rows_and_absent_columns() -> None:
    left, right = left_table([(b"a", 1, 9)]), right_table([])
    assert find_as_of(left, right, on=["user"], left_time="t", valid_from="from", arrival=None).tolist() == [-1]
    assert find_as_of(left[:0], right, on=["user"], left_time="t", valid_from="from", arrival=None).tolist() == []
    with pytest.raises(DataError, match="since"):
        find_as_of(left, right, on=["user"], left_time="t", valid_from="since", arrival=None)
    with pytest.raises(DataError, match="one type for both"):
        other = right.set_column(0, "user", pa.array([], pa.int64()))
        find_as_of(left, other, on=["user"], left_time="t", valid_from="from", arrival=None)
