"""Target attention over lists: what of a history matters for this target. DIN, Zhou et al. (2018), section 4.3.

Letters: `B` batch, `P` positions, `F` fields, `T` positions of one list, `D` width, `U` hidden units.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import tensorflow as tf

from models.config import AttentionSpec
from models.layers import Dense
from models.weights import WeightMaker
from preprocessing.errors import ConfigError
from preprocessing.schema import DatasetSchema, IdField, ListField

__all__ = ["TargetAttention"]

FieldT = TypeVar("FieldT", IdField, ListField)


class TargetAttention:
    """The fields' vectors, with those of attended lists pooled by v = sum_t a(e_t, e) e_t, equation 3.

    e_t are the rows of the list's values and e is the target's row. As in the paper the weights a are no softmax: how
    much of the list is like the target is left in the length of v.
    """

    def __init__(self, make: WeightMaker, spec: AttentionSpec, schema: DatasetSchema, *, width: int) -> None:
        """Takes the lists and targets from `spec`.

        Raises:
            ConfigError: if a name is not that of a list or an id field, or the two are in different tables.
        """
        self._units = [
            _Unit(make, spec, _cells(schema, name, target), name=f"attention/{name}", width=width)
            for name, target in spec.targets.items()
        ]

    def __call__(self, pooled: tf.Tensor, rows: tf.Tensor, weights: tf.Tensor, *, compute_dtype: tf.DType) -> tf.Tensor:
        """Returns [B, F, D].

        Args:
            pooled: [B, F, D], where attended lists have any vector.
            rows: [B, P, D] as looked up.
            weights: [B, positions of all lists], 0 where a list has no value.
            compute_dtype: of the units' layers.
        """
        fields = tf.unstack(pooled, axis=1)
        for unit in self._units:
            fields[unit.cells.field] = unit(rows, weights, compute_dtype)
        return tf.stack(fields, axis=1)


@dataclasses.dataclass(frozen=True)
class _Cells:
    """Where a list and its target are: the first of `length` list positions, and the places of the two fields."""

    first: int
    length: int
    num_ids: int
    field: int
    target: int


class _Unit:
    """The activation unit: a(e_t, e) = w PReLU(W [e_t, e, e_t * e] + b) + c; one for each list."""

    def __init__(self, make: WeightMaker, spec: AttentionSpec, cells: _Cells, *, name: str, width: int) -> None:
        self.cells = cells
        widths = (3 * width, *spec.hidden_units)  # the difference e_t - e is linear in both: it would add nothing
        self._layers = [
            Dense(make, f"{name}/{i}", fan_in=widths[i], fan_out=widths[i + 1]) for i in range(len(spec.hidden_units))
        ]
        self._slopes = [make.constant(f"{name}/{i}/slope", (u,), value=0.25) for i, u in enumerate(spec.hidden_units)]
        self._out = Dense(make, f"{name}/out", fan_in=widths[-1], fan_out=1)

    def __call__(self, rows: tf.Tensor, weights: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Returns [B, D]; zeros for an empty list."""
        at, width = self.cells, int(rows.shape[2])
        values = rows[:, at.num_ids + at.first : at.num_ids + at.first + at.length]
        target = tf.broadcast_to(rows[:, at.target, None], tf.shape(values))
        hidden = tf.cast(tf.reshape(tf.concat([values, target, values * target], axis=2), [-1, 3 * width]), dtype)
        for layer, slope in zip(self._layers, self._slopes, strict=True):
            hidden = layer(hidden)
            hidden = tf.nn.relu(hidden) - tf.cast(slope, dtype) * tf.nn.relu(-hidden)
        scores = tf.reshape(tf.cast(self._out(hidden), rows.dtype), [-1, 1, at.length])
        counts = tf.cast(tf.not_equal(weights[:, None, at.first : at.first + at.length], 0), rows.dtype)
        return tf.squeeze(tf.matmul(scores * counts, values), axis=1)


def _cells(schema: DatasetSchema, name: str, target: str) -> _Cells:
    lists, ids = list(schema.list_fields), list(schema.id_fields)
    history = _found(lists, name, noun="a list of ids")
    other = _found(ids, target, noun="an id")
    if history.table != other.table:
        raise ConfigError(
            f"model.attention.targets: {name!r} looks up table {history.table!r} and {target!r} table {other.table!r}; "
            "they are compared by their rows: give both features the same `table`"
        )
    place = lists.index(history)
    first = sum(field.length for field in lists[:place])
    return _Cells(first, history.length, len(ids), len(ids) + place, ids.index(other))


def _found(fields: list[FieldT], name: str, *, noun: str) -> FieldT:
    for field in fields:
        if field.name == name:
            return field
    known = ", ".join(field.name for field in fields) or "none"
    raise ConfigError(f"model.attention.targets: {name!r} is no feature that is {noun}; those are: {known}")
