"""The transform as one TensorFlow graph: raw columns to model inputs, saved beside the data and inside the model.

    folder/saved_model.pb, assets/, ...   the graph and its vocabularies
    folder/transform.json                 the same in canonical text: equal for equal transforms

`B` batch, `F` id fields, `D` dense inputs, `L` list length, `N` any number of values.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from preprocessing.encode import encode_columns
from preprocessing.errors import ArtefactError
from preprocessing.feature_graphs import FeatureGraph, feature_graph
from preprocessing.manifest import write_json
from preprocessing.schema import DENSE_KEY, IDS_KEY, LIST_PREFIX, RawColumn
from preprocessing.spec import BucketedListFeature, MultivaluedFeature, NumericFeature, columns_of
from preprocessing.transform_plan import FeaturePlan, TransformPlan, plan_transform
from preprocessing.vocabulary_table import IdTable

__all__ = [
    "TRANSFORM_FILE",
    "Transform",
    "TransformPlan",
    "encode_columns",
    "load_transform",
    "plan_transform",
    "save_transform",
]

TRANSFORM_FILE = "transform.json"

_DTYPES = {"string": tf.string, "int64": tf.int64, "float32": tf.float32}


class Transform(tf.Module):
    """Raw columns of a batch to model inputs; and each feature apart, for use on distinct values.

    `transform(raw)` takes every raw column of the schema, string, int64 or float32, [B] or [B, L], and returns
    `ids` int64 [B, F], `dense` float32 [B, D] and `list/NAME` int64 [B, L]; a key of length 0 is left out.
    `transform.apply_features(columns)` takes the columns of each feature, flat and of any length, and returns what
    each makes of them, in the order of the config: one function, since each costs a tenth of a second to trace, save
    and load.
    """

    def __init__(self, plan: TransformPlan, *, asset_folder: Path) -> None:
        """Writes the vocabularies to `asset_folder`, which must stay until the module is saved or dropped."""
        super().__init__()
        self.table = IdTable(plan.vocabularies, folder=asset_folder)
        tables = {name: functools.partial(self.table.ids, table=name) for name in plan.vocabularies}
        graphs = [feature_graph(one, tables=tables, time_zone=plan.time_zone) for one in plan.features]
        raw = {column.name: column for column in plan.schema.raw_columns}
        self.apply_features = _each_feature(plan.features, graphs, raw)
        self._apply = _all_features(plan.features, graphs)
        # Traced for any batch size: calls find this trace, and it is what is saved.
        self.__call__.get_concrete_function({name: _spec(column) for name, column in raw.items()})

    @tf.function(autograph=False)
    def __call__(self, raw: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the model inputs of a batch."""
        return self._apply(raw)


def _spec(column: RawColumn) -> tf.TensorSpec:
    shape = [None] if column.length is None else [None, column.length]
    return tf.TensorSpec(shape, _DTYPES[column.dtype])


def _each_feature(
    plans: Sequence[FeaturePlan], graphs: Sequence[FeatureGraph], raw: Mapping[str, RawColumn]
) -> tf.types.experimental.GenericFunction:
    """Returns the function of all features apart, traced for flat columns."""

    def apply(columns: Sequence[Sequence[tf.Tensor]]) -> list[tf.Tensor]:
        return [graph(*inputs) for graph, inputs in zip(graphs, columns, strict=True)]

    signature = [[tf.TensorSpec([None], _DTYPES[raw[n].dtype]) for n in columns_of(one.feature)] for one in plans]
    # Nothing here branches on tensors, and to rewrite functions for it costs seconds.
    return tf.function(apply, autograph=False, input_signature=[signature])


def _all_features(
    plans: tuple[FeaturePlan, ...], graphs: list[FeatureGraph]
) -> Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]]:
    def apply(raw: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids, dense, outputs = [], [], {}
        for plan, graph in zip(plans, graphs, strict=True):
            feature = plan.feature
            columns = [raw[name] for name in columns_of(feature)]
            if isinstance(feature, MultivaluedFeature | BucketedListFeature):
                outputs[LIST_PREFIX + feature.name] = graph(columns[0][:, : feature.max_length])
            elif isinstance(feature, NumericFeature) and feature.buckets is None:
                dense.append(graph(columns[0]))
            else:
                ids.append(graph(*columns))
        if ids:
            outputs[IDS_KEY] = tf.stack(ids, axis=1)
        if dense:
            outputs[DENSE_KEY] = tf.concat(dense, axis=1)
        return outputs

    return apply


def save_transform(plan: TransformPlan, folder: Path) -> Transform:
    """Writes the transform as a SavedModel, and as canonical text; returns what was written, ready for use."""
    with tempfile.TemporaryDirectory() as assets:
        transform = Transform(plan, asset_folder=Path(assets))
        tf.saved_model.save(transform, str(folder))
    write_json(folder / TRANSFORM_FILE, plan.canonical())
    return transform


def load_transform(folder: Path) -> Any:
    """Returns the saved transform: it is called, and its features are applied, as a `Transform`.

    Raises:
        ArtefactError: if there is none.
    """
    if not (folder / TRANSFORM_FILE).is_file():
        raise ArtefactError(f"{folder} holds no transform ({TRANSFORM_FILE} is absent); run preprocess again")
    try:
        return tf.saved_model.load(str(folder))
    except (OSError, tf.errors.OpError) as error:
        raise ArtefactError(f"the transform in {folder} cannot be loaded: {error}; run preprocess again") from error
