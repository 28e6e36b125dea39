"""A trained model as a SavedModel for TF Serving: raw columns in, probabilities out, the transform inside.

Signatures, with a column's dtype and missing marker from `preprocessing.schema.RawColumn`:

    serving_default    one input for each raw column, [B] or [B, L] padded with the marker;
                       one output for each label, float32 [B]
    serving_examples   `inputs`: serialised tf.Example of the raw columns, string [B]; a column that an Example
                       leaves out is missing. `outputs`: float32 [B], the first label (so that Regress works)

Everything is float32 and stock TensorFlow, whatever training used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from models.build import build_model
from models.checkpoint import load_checkpoint
from models.config import ModelSpec, OptimizersSpec
from models.ranking_model import RankingModel
from preprocessing.dataset import TRANSFORM_FOLDER, Dataset
from preprocessing.schema import DatasetSchema, RawColumn
from preprocessing.transform import load_transform

__all__ = ["DEFAULT_SIGNATURE", "EXAMPLES_SIGNATURE", "export_model"]

DEFAULT_SIGNATURE = "serving_default"
EXAMPLES_SIGNATURE = "serving_examples"

_DTYPES = {"string": tf.string, "int64": tf.int64, "float32": tf.float32}


class _Servable(tf.Module):
    """The transform and the network, and nothing that only training needs."""

    def __init__(self, schema: DatasetSchema, transform: Any, model: RankingModel) -> None:
        super().__init__(name="servable")
        self._schema = schema
        self._transform = transform
        self._model = model
        self._variables = model.inference_variables  # tracked here, so that they are saved and slots are not

    def probabilities(self, raw: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns float32 [B, K] from raw columns."""
        return tf.sigmoid(self._model.logits(self._transform(raw)))

    def signatures(self) -> dict[str, tf.types.experimental.GenericFunction]:
        """Returns the signatures, traced."""
        labels, columns = self._schema.labels, self._schema.raw_columns

        @tf.function(autograph=False)
        def by_columns(**raw: tf.Tensor) -> dict[str, tf.Tensor]:
            return dict(zip(labels, tf.unstack(self.probabilities(raw), axis=1), strict=True))

        @tf.function(autograph=False)
        def by_examples(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
            raw = _columns_of(tf.io.parse_example(inputs, _example_spec(columns)), columns)
            return {"outputs": self.probabilities(raw)[:, 0]}

        tensors = {column.name: _tensor_spec(column) for column in columns}
        return {
            DEFAULT_SIGNATURE: by_columns.get_concrete_function(**tensors),
            EXAMPLES_SIGNATURE: by_examples.get_concrete_function(tf.TensorSpec([None], tf.string, name="inputs")),
        }


def export_model(
    dataset: Dataset, checkpoint: Path, *, model: ModelSpec, optimizers: OptimizersSpec, folder: Path
) -> None:
    """Writes the SavedModel of a checkpoint into `folder`, which must not exist.

    Args:
        dataset: what the model was trained on; gives the schema and the transform.
        checkpoint: weights, as `models.checkpoint` writes them.
        model: the network, as it was trained.
        optimizers: as in training; only the shape of the checkpoint depends on them.
        folder: where the SavedModel goes.
    """
    trained = build_model(
        dataset.schema, model.model_copy(update={"precision": "float32"}), optimizers=optimizers, seed=0
    )
    load_checkpoint(checkpoint, trained, slots=False)
    servable = _Servable(dataset.schema, load_transform(dataset.folder / TRANSFORM_FOLDER), trained)
    tf.saved_model.save(servable, str(folder), signatures=servable.signatures())


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
