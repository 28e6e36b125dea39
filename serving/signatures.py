"""The signatures of an exported model, with a column's dtype and missing marker from `preprocessing.schema.RawColumn`.

serving_default    one input for each raw column, [B] or [B, L] padded with the marker;
                   one output for each label, float32 [B]
serving_examples   `inputs`: serialised tf.Example of the raw columns, string [B]; a column that an Example
                   leaves out is missing. `outputs`: float32 [B], the first label (so that Regress works)
packed             as serving_default, with the columns in matrices (see `packed`)
rank               the user's columns [Q] and the candidates' [Q, N] (see `rank_graph`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from models.ranking_model import RankingModel
from preprocessing.schema import DatasetSchema, RawColumn
from serving.export_spec import RankOptions
from serving.packed import PACKED_SIGNATURE, PackedLayout
from serving.rank_graph import RankGraph
from serving.rows import InputColumn

__all__ = [
    "DEFAULT_SIGNATURE",
    "EXAMPLES_SIGNATURE",
    "RANK_SIGNATURE",
    "Servable",
    "packed_layout",
]

DEFAULT_SIGNATURE = "serving_default"
EXAMPLES_SIGNATURE = "serving_examples"
RANK_SIGNATURE = "rank"

_DTYPES = {"string": tf.string, "int64": tf.int64, "float32": tf.float32}
_NAMES = {"string": "DT_STRING", "int64": "DT_INT64", "float32": "DT_FLOAT"}
_MATRIX_DTYPES = {"strings": tf.string, "floats": tf.float32, "integers": tf.int64}

Signatures = dict[str, tf.types.experimental.GenericFunction]


class Servable(tf.Module):
    """The transform and the network, and nothing that only preprocessing or training needs.

    Tracked, and so saved, are the variables that `logits` reads and the transform's lookup table; the transform's own
    functions are used while signatures are traced, and left out.
    """

    def __init__(self, schema: DatasetSchema, *, transform: Any, model: RankingModel) -> None:
        super().__init__(name="servable")
        self._schema = schema
        self._variables = model.inference_variables
        self._table = transform.table
        self._parts: Callable[[], tuple[Any, RankingModel]] = lambda: (transform, model)  # so neither is tracked

    def probabilities(self, raw: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns float32 [B, K] from raw columns."""
        transform, model = self._parts()
        return tf.sigmoid(model.logits(transform(raw)))

    def signatures(self, rank: RankOptions | None) -> Signatures:
        """Returns the signatures, traced; `rank` only if it is given."""
        made = {**self._by_columns(), **self._by_examples(), **self._by_matrices()}
        return made if rank is None else {**made, **self._by_candidates(rank)}

    def _outputs(self, raw: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return dict(zip(self._schema.labels, tf.unstack(self.probabilities(raw), axis=1), strict=True))

    def _by_columns(self) -> Signatures:
        @tf.function(autograph=False)
        def by_columns(**raw: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._outputs(raw)

        tensors = {column.name: _tensor_spec(column) for column in self._schema.raw_columns}
        return {DEFAULT_SIGNATURE: by_columns.get_concrete_function(**tensors)}

    def _by_examples(self) -> Signatures:
        columns = self._schema.raw_columns

        @tf.function(autograph=False)
        def by_examples(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
            raw = _columns_of(tf.io.parse_example(inputs, _example_spec(columns)), columns)
            return {"outputs": self.probabilities(raw)[:, 0]}

        return {EXAMPLES_SIGNATURE: by_examples.get_concrete_function(tf.TensorSpec([None], tf.string, name="inputs"))}

    def _by_matrices(self) -> Signatures:
        layout = packed_layout(self._schema.raw_columns)

        @tf.function(autograph=False)
        def by_matrices(**packed: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._outputs(layout.unpack(packed))

        tensors = {
            name: tf.TensorSpec([None, layout.width(name)], _MATRIX_DTYPES[name], name=name) for name in layout.matrices
        }
        return {PACKED_SIGNATURE: by_matrices.get_concrete_function(**tensors)}

    def _by_candidates(self, options: RankOptions) -> Signatures:
        transform, model = self._parts()
        graph = RankGraph(self._schema, options, transform=transform, model=model)

        @tf.function(autograph=False)
        def by_candidates(**raw: tf.Tensor) -> dict[str, tf.Tensor]:
            return graph(raw)

        return {RANK_SIGNATURE: by_candidates.get_concrete_function(**graph.inputs(_DTYPES))}


def packed_layout(columns: Sequence[RawColumn]) -> PackedLayout:
    """Returns where raw columns are in the packed form."""
    return PackedLayout.of(
        [
            InputColumn(column.name, _NAMES[column.dtype], (-1,) if column.length is None else (-1, column.length))
            for column in columns
        ]
    )


def _tensor_spec(column: RawColumn) -> tf.TensorSpec:
    shape = [None] if column.length is None else [None, column.length]
    return tf.TensorSpec(shape, _DTYPES[column.dtype], name=column.name)


def _example_spec(columns: tuple[RawColumn, ...]) -> dict[str, object]:
    """Scalars fall back on the missing marker; lists may have any length in a tf.Example."""
    spec: dict[str, object] = {}
    for column in columns:
        dtype = _DTYPES[column.dtype]
        if column.length is None:
            spec[column.name] = tf.io.FixedLenFeature([], dtype, default_value=column.missing_marker())
        else:
            spec[column.name] = tf.io.RaggedFeature(dtype)
    return spec


def _columns_of(parsed: dict[str, Any], columns: tuple[RawColumn, ...]) -> dict[str, tf.Tensor]:
    raw = dict(parsed)
    for column in columns:
        if column.length is not None:
            ragged = raw[column.name]
            raw[column.name] = ragged.to_tensor(column.missing_marker(), shape=[None, column.length])
    return raw
