"""From ids to rows, and from rows to one vector a field."""

import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from models.config import ModelSpec, OptimizersSpec
from models.lookup import Lookup
from models.placement import EMBEDDING, FIRST_ORDER, EmbeddingPlan, plan_embeddings
from preprocessing.schema import DatasetSchema, IdField, ListField, TableSchema

SCHEMA = DatasetSchema(
    raw_columns=(),
    id_fields=(IdField(name="user", table="user"), IdField(name="item", table="item")),
    list_fields=(
        ListField(name="seen", table="item", length=3, pooling="mean"),
        ListField(name="tags", table="tag", length=2, pooling="sum"),
        ListField(name="shops", table="tag", length=2, pooling="sqrtn"),
    ),
    tables=(
        TableSchema(name="user", num_rows=5),
        TableSchema(name="item", num_rows=4),
        TableSchema(name="tag", num_rows=3),
    ),
    labels=("click",),
)
OFFSETS = np.array([0, 5, 5, 5, 5, 9, 9, 9, 9])
SCRATCH = 12


def plan(schema: DatasetSchema = SCHEMA) -> EmbeddingPlan:
    return plan_embeddings(schema, ModelSpec(), optimizers=OptimizersSpec(), groups=(EMBEDDING, FIRST_ORDER))


def rows_of(ids: list[int], **arguments: object) -> list[int]:
    lookup = Lookup(SCHEMA, plan())
    positions = lookup.positions(tf.constant([ids], tf.int64), dtype=tf.float64, **arguments)
    return [int(row) for row in positions.rows.numpy()[0]]


def test_ids_of_a_batch_are_taken_in_the_order_of_the_schema() -> None:
    batch = {
        "ids": tf.constant([[1, 2]], tf.int64),
        "list/shops": tf.constant([[8, 9]], tf.int64),
        "list/tags": tf.constant([[6, 7]], tf.int64),
        "list/seen": tf.constant([[3, 4, 5]], tf.int64),
    }
    np.testing.assert_array_equal(Lookup(SCHEMA, plan()).ids(batch), [list(range(1, 10))])


def test_id_0_is_a_row_of_a_field_and_padding_of_a_list() -> None:
    assert rows_of([0, 0, 2, 0, 0, 0, 0, 1, 0]) == [0, 5, 7, SCRATCH, SCRATCH, SCRATCH, SCRATCH, 10, SCRATCH]


def test_rows_that_are_not_live_touch_no_table() -> None:
    assert rows_of([1] * 9, live=tf.constant([[False]])) == [SCRATCH] * 9


@given(ids=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=9, max_size=9))
def test_no_id_reaches_another_table(ids: list[int]) -> None:
    limits = [5, 4, 4, 4, 4, 3, 3, 3, 3]
    for position, (row, given_id) in enumerate(zip(rows_of(ids), ids, strict=True)):
        if position >= 2 and given_id == 0:
            assert row == SCRATCH
        else:
            local = given_id if 0 <= given_id < limits[position] else 1
            assert row == OFFSETS[position] + local


def pooled(ids: list[int], **arguments: object) -> np.ndarray:
    lookup = Lookup(SCHEMA, plan())
    positions = lookup.positions(tf.constant([ids], tf.int64), dtype=tf.float64, **arguments)
    values = tf.constant(10.0 ** np.arange(9).reshape(1, 9, 1))
    return np.asarray(lookup.pool(values, positions.weights))[0, :, 0]


def test_lists_are_pooled_by_mean_sum_and_root() -> None:
    expected = [1e0, 1e1, (1e2 + 1e4) / 2, 1e5 + 1e6, (1e7 + 1e8) / np.sqrt(2)]
    np.testing.assert_allclose(pooled([1, 1, 1, 0, 1, 1, 1, 1, 1]), expected)


def test_empty_lists_give_zeros() -> None:
    np.testing.assert_allclose(pooled([1, 1, 0, 0, 0, 0, 0, 0, 0]), [1e0, 1e1, 0, 0, 0])


def test_weights_and_lengths_count() -> None:
    weights = tf.constant([[1.0, 3.0, 5.0, 2.0, 0.5, 3.0, 4.0]])
    lengths = tf.constant([[2, 2, 2]], tf.int64)
    expected = [1e0, 1e1, (1e2 + 3e3) / 4, 2e5 + 0.5e6, (3e7 + 4e8) / 5]
    np.testing.assert_allclose(pooled([1] * 9, weights=weights, lengths=lengths), expected)


def test_a_schema_of_lists_alone_works() -> None:
    schema = SCHEMA.model_copy(update={"id_fields": ()})
    lookup = Lookup(schema, plan(schema))
    positions = lookup.positions(tf.constant([[1, 2, 0, 1, 0, 2, 0]], tf.int64), dtype=tf.float64)
    values = lookup.pool(tf.ones((1, 7, 4), tf.float64), positions.weights)
    np.testing.assert_allclose(values, np.ones((1, 3, 4)))


def test_ids_that_no_table_has_are_counted_where_they_count() -> None:
    def count(ids: list[int], **arguments: object) -> int:
        positions = Lookup(SCHEMA, plan()).positions(tf.constant([ids], tf.int64), dtype=tf.float64, **arguments)
        return int(positions.out_of_range)

    assert count([4, 3, 3, 3, 3, 2, 2, 2, 2]) == 0
    assert count([5, -1, 4, 0, 3, 3, 2, 2, 2**62]) == 5
    assert count([5] * 9, live=tf.constant([[False]])) == 0
    assert count([0, 0, 9, 9, 9, 0, 0, 0, 0], lengths=tf.constant([[2, 0, 0]], tf.int64)) == 2


def test_ragged_lists_are_what_padded_ones_are() -> None:
    lookup = Lookup(SCHEMA, plan())
    ids = tf.constant([[1, 2], [3, 0], [0, 1]], tf.int64)
    ragged = {
        "ids": ids,
        "list/seen": tf.ragged.constant([[3, 1], [], [1, 2, 3, 2]], dtype=tf.int64),  # the fourth is cut
        "list/tags": tf.ragged.constant([[2], [1, 2], []], dtype=tf.int64),
        "list/shops": tf.ragged.constant([[], [], []], dtype=tf.int64, ragged_rank=1),
    }
    padded = {
        "ids": ids,
        "list/seen": tf.constant([[3, 1, 0], [0, 0, 0], [1, 2, 3]], tf.int64),
        "list/tags": tf.constant([[2, 0], [1, 2], [0, 0]], tf.int64),
        "list/shops": tf.zeros((3, 2), tf.int64),
    }
    np.testing.assert_array_equal(lookup.ids(ragged), lookup.ids(padded))
    weights = {key: tf.cast(ragged[key], tf.float64) / 2 for key in ragged if key != "ids"}
    expected = [[1.5, 0.5, 0, 1, 0, 0, 0], [0, 0, 0, 0.5, 1, 0, 0], [0.5, 1, 1.5, 0, 0, 0, 0]]
    np.testing.assert_array_equal(lookup.list_weights(weights), expected)


@given(
    ids=st.lists(st.integers(0, 4), min_size=2, max_size=2),
    kinds=st.permutations(["mirrored", "sharded", "table_wise"]),
)
def test_rows_lie_where_the_plan_says(ids: list[int], kinds: list[str]) -> None:
    tables = dict(zip(("user", "item", "tag"), kinds, strict=True))
    spec = ModelSpec.model_validate({"embeddings": {"tables": tables}})
    placed = plan_embeddings(SCHEMA, spec, optimizers=OptimizersSpec(), groups=(EMBEDDING,), num_replicas=3)
    given_ids = [ids[0], min(ids[1], 3), 0, 1, 2, 0, 2, 1, 2]
    rows = Lookup(SCHEMA, placed).positions(tf.constant([given_ids], tf.int64), dtype=tf.float64).rows.numpy()[0]
    names = ["user", "item", "item", "item", "item", "tag", "tag", "tag", "tag"]
    for position, (row, name, value) in enumerate(zip(rows, names, given_ids, strict=True)):
        table = placed.table(name)
        scratch = placed.shelf(table).scratch_row
        assert row == (scratch if position >= 2 and value == 0 else table.offset + value * table.stride)
