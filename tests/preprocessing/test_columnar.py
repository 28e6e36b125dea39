from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing import columnar
from preprocessing.columnar import duplicate_free, find, hash_rows, partition_slices
from preprocessing.errors import DataError

LIMITS = settings(deadline=None, max_examples=60)  # machines under test are busy

TEXT = st.sampled_from([None, b"", b"a", b"b", b"\xff", b"a\x00"])
NUMBER = st.sampled_from([None, 0, 1, -(2**63), 2**63 - 1])
LIST = st.one_of(st.none(), st.lists(st.sampled_from([None, 1, 2]), max_size=2))
ROWS = st.lists(st.tuples(TEXT, NUMBER, LIST, st.sampled_from([None, 1, 2, 3])), max_size=30)
SCHEMA = pa.schema([("a", pa.binary()), ("b", pa.int64()), ("c", pa.list_(pa.int64())), ("t", pa.int64())])


def make_table(rows: Sequence[Sequence[Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


def slow_duplicate_free(rows: list[Any], key: list[int], order: list[int]) -> list[int]:
    """First of equal keys by (order, nulls last), then by place."""
    best: dict[Any, Any] = {}
    for index, row in enumerate(rows):
        name = tuple(tuple(row[i]) if isinstance(row[i], list) else row[i] for i in key)
        rank = ([(row[i] is None, row[i] or 0) for i in order], index)
        best[name] = min(best.get(name, rank), rank)
    return sorted(index for _, index in best.values())


@LIMITS
@given(ROWS)
def test_whole_row_duplicates_leave_the_first(rows: list[Any]) -> None:
    result = duplicate_free(make_table(rows), key=None, order=())
    assert result.tolist() == slow_duplicate_free(rows, [0, 1, 2, 3], [])


@LIMITS
@given(ROWS)
def test_duplicates_by_key_leave_the_first_by_order(rows: list[Any]) -> None:
    result = duplicate_free(make_table(rows), key=["b", "a"], order=("t",))
    assert result.tolist() == slow_duplicate_free(rows, [1, 0], [3])


@LIMITS
@given(ROWS)
def test_a_hash_collision_drops_no_row(rows: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar, "hash_rows", lambda table, _: np.zeros(table.num_rows, np.uint64))
        result = duplicate_free(make_table(rows), key=["a", "c"], order=("t",))
    assert result.tolist() == slow_duplicate_free(rows, [0, 2], [3])


def test_duplicates_are_found_across_chunks() -> None:
    part = make_table([(b"x", 1, [1], 1)])
    assert duplicate_free(pa.concat_tables([part, part, part]), key=None, order=()).tolist() == [0]


def test_not_a_number_and_negative_zero_are_duplicates_of_their_like() -> None:
    table = pa.table({"x": [0.0, -0.0, float("nan"), float("nan"), None, None]})
    assert duplicate_free(table, key=None, order=()).tolist() == [0, 2, 4]


@LIMITS
@given(st.lists(st.tuples(TEXT, NUMBER), max_size=30), st.lists(st.tuples(TEXT, NUMBER), max_size=30))
def test_find_gives_the_last_equal_row(keys: list[Any], rows: list[Any]) -> None:
    schema = pa.schema([("a", pa.binary()), ("b", pa.int64())])
    left, right = make_table(keys, schema), make_table(rows, schema)
    last = {row: index for index, row in enumerate(rows) if None not in row}
    assert find(left, right, on=["a", "b"]).tolist() == [last.get(key, -1) for key in keys]
    first = {row[0]: index for index, row in enumerate(rows) if row[0] is not None}
    assert find(left, right, on=["a"]).tolist() == [first.get(key[0], -1) for key in keys]


def test_find_takes_record_batches_and_three_columns() -> None:
    table = pa.table({"a": [1, 1, 2], "b": [1, 2, 2], "c": [1, 2, 1]})
    keys = pa.RecordBatch.from_pydict({"a": [2, 1, 1], "b": [2, 2, 1], "c": [1, 2, 2]})
    assert find(keys, table, on=["a", "b", "c"]).tolist() == [2, 1, -1]


def test_find_refuses_keys_of_two_types() -> None:
    with pytest.raises(DataError, match=r"'k' is int64 on one side and binary on the other"):
        find(pa.table({"k": [1]}), pa.table({"k": pa.array([b"1"], pa.binary())}), on=["k"])


def test_row_hash_depends_on_columns_and_their_order_only() -> None:
    table = pa.table({"a": [1, 2], "b": [2, 1], "c": [5, 6]})
    forward, backward = hash_rows(table, ["a", "b"]), hash_rows(table, ["b", "a"])
    assert forward[0] == backward[1]
    assert forward[0] != forward[1]
    assert hash_rows(table.drop_columns("c").to_batches()[0], ["a", "b"]).tolist() == forward.tolist()


@LIMITS
@given(st.lists(st.integers(0, 5), max_size=40))
def test_partition_slices_keep_the_order_within_a_partition(ids: list[int]) -> None:
    order, offsets = partition_slices(np.array(ids, np.int64))
    assert len(offsets) == max(ids, default=-1) + 2
    for partition in range(len(offsets) - 1):
        rows = order[offsets[partition] : offsets[partition + 1]].tolist()
        assert rows == [index for index, value in enumerate(ids) if value == partition]


def test_partition_slices_take_more_partitions_than_16_bits_count() -> None:
    order, offsets = partition_slices(np.array([70_000, 4_464, 0]))  # 70,000 modulo 2^16 is 4,464
    assert order.tolist() == [2, 1, 0]
    assert offsets[[0, 1, 4_465, 70_000, 70_001]].tolist() == [0, 1, 2, 2, 3]
