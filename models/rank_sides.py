"""One user and many candidates: what belongs to the user is looked up once and spread over the candidates.

Letters: `Q` requests, `N` candidates of each, `F` fields, `D` width, `K` labels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import tensorflow as tf

from models.lookup import Lookup
from models.mode import Inputs
from models.ranking_model import RankingModel
from models.split_inputs import Side, SplitInputs
from preprocessing.schema import DENSE_KEY, IDS_KEY, DatasetSchema

__all__ = ["RankSides"]

Batch = Mapping[str, tf.Tensor]


class RankSides:
    """A model whose fields and numbers are of two sides, the user's and the candidate's."""

    def __init__(self, model: RankingModel, *, of_candidate: Collection[str]) -> None:
        """Takes the names of fields and dense inputs that belong to candidates; all others are the user's."""
        schema = model.schema
        self._model = model
        self.user = _part(schema, of_candidate, inside=False)
        self.candidate = _part(schema, of_candidate, inside=True)
        self._parts = (schema, self.user, self.candidate)
        self._lookups = {id(side): Lookup(side, model.tables.plan) for side in (self.user, self.candidate)}
        self._fields = _order(_fields(schema), [*_fields(self.user), *_fields(self.candidate)])
        self._dense = _order(schema.dense, [*self.user.dense, *self.candidate.dense])

    def logits(self, user: Batch, candidate: Batch, *, num_requests: tf.Tensor, num_candidates: tf.Tensor) -> tf.Tensor:
        """Returns float32 [Q N, K], the candidates of a request one after the other.

        Args:
            user: inputs of the user's fields, Q rows.
            candidate: inputs of the candidates' fields, Q N rows.
            num_requests: Q, int32 scalar.
            num_candidates: N, int32 scalar.
        """
        if self._model.needs_whole_rows:
            return self._model.logits(self._pairs(user, candidate, num_candidates=num_candidates))
        split = SplitInputs(
            self._side(user, self.user, num_rows=num_requests),
            self._side(candidate, self.candidate, num_rows=num_requests * num_candidates),
            num_requests,
            num_candidates,
        )
        logits = self._model.split_logits(split)
        return self._model.network_logits(self._joined(split)) if logits is None else logits

    def _pairs(self, user: Batch, candidate: Batch, *, num_candidates: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the inputs of each pair, Q N rows, the user's ids and numbers copied."""
        copied = {key: _spread(value, num_candidates) for key, value in user.items()}
        pairs = {**copied, **candidate}
        names = {
            IDS_KEY: [[field.name for field in part.id_fields] for part in self._parts],
            DENSE_KEY: [list(part.dense) for part in self._parts],
        }
        for key, (whole, ours, theirs) in names.items():
            if ours and theirs:
                joined = tf.concat([copied[key], candidate[key]], axis=1)
                pairs[key] = tf.gather(joined, _order(whole, [*ours, *theirs]), axis=1)
        return pairs

    def _joined(self, split: SplitInputs) -> Inputs:
        """Returns the inputs of each pair, the user's copied."""
        ours, theirs = split.user.inputs, split.candidate.inputs

        def whole(mine: tf.Tensor, other: tf.Tensor, order: Sequence[int]) -> tf.Tensor:
            joined = tf.concat([_spread(mine, split.num_candidates), other], axis=1)
            return joined if list(order) == sorted(order) else tf.gather(joined, order, axis=1)

        first_order = None
        if ours.first_order is not None and theirs.first_order is not None:
            first_order = whole(ours.first_order, theirs.first_order, self._fields)
        embedding = whole(ours.embedding, theirs.embedding, self._fields)
        return Inputs(embedding, first_order, whole(ours.dense, theirs.dense, self._dense))

    def _side(self, batch: Batch, part: DatasetSchema, *, num_rows: tf.Tensor) -> Side:
        schema, width = self._model.schema, self._model.spec.embedding_dim
        fields, dense = _fields(schema), list(schema.dense)
        of_dense = np.array([dense.index(name) for name in part.dense], np.int64)
        places = np.array([fields.index(name) for name in _fields(part)], np.int64)
        of_fields = (places[:, None] * width + np.arange(width)).reshape(-1)
        deep = np.concatenate([of_fields, len(fields) * width + of_dense])
        return Side(self._inputs(batch, part, num_rows=num_rows), deep, of_dense)

    def _inputs(self, batch: Batch, side: DatasetSchema, *, num_rows: tf.Tensor) -> Inputs:
        return self._model.inputs_of(batch, side, lookup=self._lookups[id(side)], num_rows=num_rows)


def _spread(values: tf.Tensor, times: tf.Tensor) -> tf.Tensor:
    """Returns each row of [Q, ...] `times` times, as a copy that costs what writing it costs."""
    tail = [int(size) for size in values.shape[1:]]
    tiled = tf.tile(values[:, None], [1, times, *([1] * len(tail))])
    return tf.reshape(tiled, [-1, *tail])


def _part(schema: DatasetSchema, names: Collection[str], *, inside: bool) -> DatasetSchema:
    return schema.model_copy(
        update={
            "id_fields": tuple(field for field in schema.id_fields if (field.name in names) == inside),
            "list_fields": tuple(field for field in schema.list_fields if (field.name in names) == inside),
            "dense": tuple(name for name in schema.dense if (name in names) == inside),
        }
    )


def _fields(schema: DatasetSchema) -> list[str]:
    return [*(field.name for field in schema.id_fields), *(field.name for field in schema.list_fields)]


def _order(wanted: Sequence[str], have: Sequence[str]) -> list[int]:
    """Returns the places in `have` of what is wanted."""
    places = {name: place for place, name in enumerate(have)}
    return [int(place) for place in np.array([places[name] for name in wanted], np.int64)]
