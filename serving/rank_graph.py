"""The graph of the signature `rank`: a user and candidates in, their scores and the best of them out.

A feature of user columns alone is made once a request, one that reads any candidate column once a candidate. A
candidate of which every column is missing is padding: it scores -inf and is never among the best.
`Q` requests, `N` candidates of each, `L` list length, `K` labels, `k` = top_k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from models.rank_sides import RankSides
from models.ranking_model import RankingModel
from preprocessing.errors import ConfigError
from preprocessing.feature_spec import FeatureSpec, columns_of
from preprocessing.schema import DENSE_KEY, IDS_KEY, LIST_PREFIX, DatasetSchema, RawColumn
from preprocessing.spec import BucketedListFeature, CrossedFeature, MultivaluedFeature, NumericFeature
from preprocessing.transform_plan import indicator_name
from serving.export_spec import RankOptions

__all__ = ["TOP_INDICES", "TOP_SCORES", "RankGraph"]

TOP_INDICES = "top_indices"
TOP_SCORES = "top_scores"

Raw = Mapping[str, tf.Tensor]


class RankGraph:
    """From raw columns, the user's [Q] or [Q, L] and the candidates' [Q, N] or [Q, N, L], to scores."""

    def __init__(self, schema: DatasetSchema, options: RankOptions, *, transform: Any, model: RankingModel) -> None:
        """Checks that the columns named as candidates' are there, and that no label is called like an output.

        Raises:
            ConfigError: if not.
        """
        self._schema, self._options, self._transform = schema, options, transform
        self._columns = {column.name: column for column in schema.raw_columns}
        taken = {TOP_INDICES, TOP_SCORES} & set(schema.labels)
        if taken:
            raise ConfigError(f"data.labels: {min(taken)!r} is an output of the signature rank; choose another name")
        self.item_columns = tuple(name for name in self._columns if name in options.item_columns)
        if not self.item_columns:
            raise ConfigError("export.rank.item_columns: no feature reads any of them; name columns of candidates")
        names = {feature.name for feature in options.features if self._is_of_candidate(feature)}
        self._sides = RankSides(model, of_candidate=names | {indicator_name(name) for name in names})

    def _is_of_candidate(self, feature: FeatureSpec) -> bool:
        return any(name in self._options.item_columns for name in columns_of(feature))

    def inputs(self, dtypes: Mapping[str, tf.DType]) -> dict[str, tf.TensorSpec]:
        """Returns the inputs by column."""

        def spec(column: RawColumn) -> tf.TensorSpec:
            leading = [None, None] if column.name in self.item_columns else [None]
            shape = leading if column.length is None else [*leading, column.length]
            return tf.TensorSpec(shape, dtypes[column.dtype], name=column.name)

        return {name: spec(column) for name, column in self._columns.items()}

    def __call__(self, raw: Raw) -> dict[str, tf.Tensor]:
        """Returns float32 [Q, N] for each label, and the k best by the first one: `top_indices` int32 [Q, k], -1
        where there are fewer candidates, and `top_scores` float32 [Q, k].
        """
        shape = tf.shape(raw[self.item_columns[0]])
        num_requests, num_candidates = shape[0], shape[1]
        user, candidate = self._model_inputs(raw, num_candidates)
        logits = self._sides.logits(user, candidate, num_requests=num_requests, num_candidates=num_candidates)
        scores = tf.reshape(tf.sigmoid(logits), [num_requests, num_candidates, len(self._schema.labels)])
        scores = tf.where(self._padding(raw)[..., None], tf.constant(float("-inf")), scores)
        by_label = dict(zip(self._schema.labels, tf.unstack(scores, axis=2), strict=True))
        return {**by_label, **_best(scores[:, :, 0], self._options.top_k)}

    def _padding(self, raw: Raw) -> tf.Tensor:
        """Returns bool [Q, N]: which candidates have no value in any column."""
        parts = []
        for name in self.item_columns:
            column = self._columns[name]
            missing = _is_missing(raw[name], column)
            parts.append(missing if column.length is None else tf.reduce_all(missing, axis=2))
        padding = parts[0]
        for part in parts[1:]:
            padding &= part
        return padding

    def _model_inputs(self, raw: Raw, num_candidates: tf.Tensor) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        features = self._options.features
        flat = [self._flat(feature, raw, num_candidates) for feature in features]
        found = self._transform.apply_features(flat)
        of_candidate = [self._is_of_candidate(feature) for feature in features]
        user, candidate = (
            _assembled(
                [(f, out) for f, out, inside in zip(features, found, of_candidate, strict=True) if inside == wanted]
            )
            for wanted in (False, True)
        )
        return user, candidate

    def _flat(self, feature: FeatureSpec, raw: Raw, num_candidates: tf.Tensor) -> list[tf.Tensor]:
        """Returns the columns of a feature, one value after the other; the user's are repeated beside candidates'."""
        crosses = isinstance(feature, CrossedFeature) and self._is_of_candidate(feature)
        columns = []
        for name in columns_of(feature):
            values = raw[name]
            if isinstance(feature, MultivaluedFeature | BucketedListFeature):
                values = values[..., : feature.max_length]
            elif crosses and name not in self.item_columns:
                values = tf.tile(values[:, None], [1, num_candidates])
            columns.append(tf.reshape(values, [-1]))
        return columns


def _assembled(made: Sequence[tuple[FeatureSpec, tf.Tensor]]) -> dict[str, tf.Tensor]:
    """Returns what features made as the model takes it; see `preprocessing.schema`."""
    ids, dense, outputs = [], [], {}
    for feature, values in made:
        if isinstance(feature, MultivaluedFeature | BucketedListFeature):
            outputs[LIST_PREFIX + feature.name] = tf.reshape(values, [-1, feature.max_length])
        elif isinstance(feature, NumericFeature) and feature.buckets is None:
            dense.append(values)
        else:
            ids.append(values)
    if ids:
        outputs[IDS_KEY] = tf.stack(ids, axis=1)
    if dense:
        outputs[DENSE_KEY] = tf.concat(dense, axis=1)
    return outputs


def _is_missing(values: tf.Tensor, column: RawColumn) -> tf.Tensor:
    if column.dtype == "float32":
        return tf.math.is_nan(values)
    return tf.equal(values, tf.constant(column.missing_marker(), values.dtype))


def _best(scores: tf.Tensor, top_k: int) -> dict[str, tf.Tensor]:
    """Returns the k best of scores [Q, N]; what is padding, or beyond N, has index -1."""
    lowest = tf.constant(float("-inf"))
    room = tf.maximum(top_k - tf.shape(scores)[1], 0)
    best = tf.math.top_k(tf.pad(scores, [[0, 0], [0, room]], constant_values=lowest), k=top_k)
    indices = tf.where(tf.equal(best.values, lowest), -1, best.indices)
    return {TOP_INDICES: indices, TOP_SCORES: best.values}
