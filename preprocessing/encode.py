"""Joined rows to model inputs, by the transform's own graph, run on the distinct values of each column.

`N` rows, `F` id fields, `D` dense inputs, `L` list length, `K` labels, `V` values of all lists together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from preprocessing.dictionaries import known_indices
from preprocessing.errors import DataError
from preprocessing.examples import Encoded
from preprocessing.raw_values import column_of, flat_values, list_lengths, pad_lists, raw_values
from preprocessing.schema import LABEL_PREFIX, WEIGHT_COLUMN, DatasetSchema
from preprocessing.spec import (
    BucketedListFeature,
    CategoricalFeature,
    CrossedFeature,
    FeatureSpec,
    HashedFeature,
    MultivaluedFeature,
    NumericFeature,
    columns_of,
)
from preprocessing.vocabulary import MISSING_ID

__all__ = ["encode_columns", "feature_function"]


def feature_function(index: int) -> str:
    """Returns the name of the transform's function for the feature at `index` in the config."""
    return f"apply_{index}"


def encode_columns(transform: Any, schema: DatasetSchema, features: Sequence[FeatureSpec], table: pa.Table) -> Encoded:
    """Returns the model inputs, labels and weights of joined rows.

    Args:
        transform: a `Transform`, or one loaded by `load_transform`, made from `features`.
        schema: of the dataset.
        features: in the order of the config.
        table: raw columns, label columns, and the weight column (without it each row weighs 1).

    Raises:
        DataError: if a column is absent, or a label or weight is null.
    """
    rows = _Rows(table, schema)
    # Filled column by column, so columns lie together in memory.
    ids = np.empty((len(schema.id_fields), table.num_rows), np.int64).T
    dense = np.empty((len(schema.dense), table.num_rows), np.float32).T
    lists: dict[str, npt.NDArray[np.int64]] = {}
    next_id = next_dense = 0
    for index, feature in enumerate(features):
        apply = getattr(transform, feature_function(index))
        if isinstance(feature, MultivaluedFeature | BucketedListFeature):
            lists[feature.name] = _list_ids(apply, feature, rows)
        elif isinstance(feature, NumericFeature) and feature.buckets is None:
            numbers = apply(*rows.plain(feature)).numpy()
            dense[:, next_dense : next_dense + numbers.shape[1]] = numbers
            next_dense += numbers.shape[1]
        else:
            ids[:, next_id] = _ids(apply, feature, rows)
            next_id += 1
    return Encoded(
        schema=schema, ids=ids, dense=dense, lists=lists, labels=_labels(table, schema), weight=_weight(table)
    )


class _Rows:
    """The columns of a table, each encoded once however many features read it."""

    def __init__(self, table: pa.Table, schema: DatasetSchema) -> None:
        self._table = table
        self._dtypes = {raw.name: raw.dtype for raw in schema.raw_columns}
        self._encoded: dict[str, pa.DictionaryArray] = {}

    def column(self, name: str) -> pa.Array:
        """Returns a column as it is."""
        return column_of(self._table, name)

    def plain(self, feature: FeatureSpec) -> list[tf.Tensor]:
        """Returns the columns of a feature as tensors [N]."""
        return [self.tensor(self.column(name), name) for name in columns_of(feature)]

    def encoded(self, name: str) -> pa.DictionaryArray:
        """Returns a column by its distinct values; null is one of them."""
        if name not in self._encoded:
            self._encoded[name] = distinct(self.column(name))
        return self._encoded[name]

    def tensor(self, values: pa.Array, name: str) -> tf.Tensor:
        """Returns values of a column as a tensor in the raw form."""
        return tf.constant(raw_values(values, self._dtypes[name]))


def distinct(values: pa.Array) -> pa.DictionaryArray:
    """Returns values by their distinct ones, null among them."""
    if not pa.types.is_dictionary(values.type):
        return values.dictionary_encode(null_encoding="encode")
    if values.null_count == 0:
        return values
    with_null = pa.concat_arrays([values.dictionary, pa.nulls(1, values.dictionary.type)])
    return pa.DictionaryArray.from_arrays(pa.array(known_indices(values)), with_null)


def _indices(encoded: pa.DictionaryArray) -> npt.NDArray[np.integer[Any]]:
    return encoded.indices.to_numpy()


def _ids(apply: Any, feature: FeatureSpec, rows: _Rows) -> npt.NDArray[np.int64]:
    """Returns [N] ids of a feature with one id a row."""
    if isinstance(feature, CrossedFeature):
        return _crossed_ids(apply, feature, rows)
    if isinstance(feature, CategoricalFeature | HashedFeature):
        (name,) = columns_of(feature)
        encoded = rows.encoded(name)
        return apply(rows.tensor(encoded.dictionary, name)).numpy()[_indices(encoded)]
    return apply(*rows.plain(feature)).numpy()


def _crossed_ids(apply: Any, feature: CrossedFeature, rows: _Rows) -> npt.NDArray[np.int64]:
    """Returns [N] ids of a cross, computed on the distinct combinations."""
    columns = [rows.encoded(name) for name in feature.columns]
    codes = distinct(pa.array(_combined(columns)))
    first = np.empty(len(codes.dictionary), np.int64)
    inverse = _indices(codes)
    first[inverse] = np.arange(len(inverse))  # any row of a combination stands for it
    values = [column.dictionary.take(pa.array(_indices(column)[first])) for column in columns]
    tensors = [rows.tensor(value, name) for value, name in zip(values, feature.columns, strict=True)]
    return apply(*tensors).numpy()[inverse]


def _combined(columns: Sequence[pa.DictionaryArray]) -> npt.NDArray[np.int64]:
    """Returns [N] one code for each combination; re-numbered where a product of sizes would overflow."""
    codes, size = _indices(columns[0]).astype(np.int64), len(columns[0].dictionary)
    for column in columns[1:]:
        if size * len(column.dictionary) >= 2**62:
            encoded = distinct(pa.array(codes))
            codes, size = _indices(encoded).astype(np.int64), len(encoded.dictionary)
        codes = codes * len(column.dictionary) + _indices(column)
        size *= len(column.dictionary)
    return codes


def _list_ids(apply: Any, feature: MultivaluedFeature | BucketedListFeature, rows: _Rows) -> npt.NDArray[np.int64]:
    """Returns [N, L] ids, padded with 0."""
    (name,) = columns_of(feature)
    column = rows.column(name)
    values = flat_values(column, max_length=feature.max_length)
    if isinstance(feature, BucketedListFeature):  # finding the distinct numbers costs more than cutting all of them
        ids = apply(rows.tensor(values, name)).numpy()
    else:
        encoded = distinct(values)
        ids = apply(rows.tensor(encoded.dictionary, name)).numpy()[_indices(encoded)]
    lengths = list_lengths(column, max_length=feature.max_length)
    return pad_lists(ids, lengths, length=feature.max_length, padding=MISSING_ID)


def _labels(table: pa.Table, schema: DatasetSchema) -> npt.NDArray[np.float32]:
    labels = np.empty((table.num_rows, len(schema.labels)), np.float32)
    for index, name in enumerate(schema.labels):
        labels[:, index] = _floats(table, LABEL_PREFIX + name)
    return labels


def _weight(table: pa.Table) -> npt.NDArray[np.float32]:
    if table.schema.get_field_index(WEIGHT_COLUMN) < 0:
        return np.ones(table.num_rows, np.float32)
    return _floats(table, WEIGHT_COLUMN)


def _floats(table: pa.Table, name: str) -> npt.NDArray[np.float32]:
    column = column_of(table, name)
    if column.null_count:
        raise DataError(
            f"column {name!r} has {column.null_count} nulls, a label or weight must be a number in each row"
        )
    return column.to_numpy(zero_copy_only=False).astype(np.float32)
