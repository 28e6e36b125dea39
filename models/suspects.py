"""Which tensor of a training step is the first that is not finite, where its loss is not.

The look is taken inside of the step, in a branch that only a loss which is not finite enters: with the very rows and
weights that the loss came from, before they are updated. Letters: `B` batch, `P` positions, `D` width, `N` dense.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from models.placement import positions_of
from preprocessing.schema import DatasetSchema

__all__ = ["Suspects"]


class Suspects:
    """The tensors that a loss comes from, in the order in which it does: inputs, rows of tables, dense weights."""

    def __init__(self, schema: DatasetSchema, *, groups: Sequence[str], weights: Sequence[str]) -> None:
        tables = list(dict.fromkeys(positions_of(schema)))
        self._table_of_position = tf.constant([tables.index(name) for name in positions_of(schema)], tf.int32)
        self._num_tables = len(tables)
        self._weights = tuple(weights)
        self._groups = tuple(groups)
        self.names: tuple[str, ...] = (
            *(f"dense input {name!r}" for name in schema.dense),
            "the labels",
            "the sample weights",
            *(f"looked-up rows of table {table!r} ({group})" for group in groups for table in tables),
            *(f"dense weights {name!r}" for name in weights),
        )

    def found(
        self,
        loss: tf.Tensor,
        *,
        dense: tf.Tensor,
        labels: tf.Tensor,
        weight: tf.Tensor,
        rows: Mapping[str, tf.Tensor],
        weights: Mapping[str, tf.Tensor],
    ) -> tf.Tensor:
        """Returns float64 [len(names)]: 1 for each that is not finite; zeros, without a look, if the loss is finite.

        Args:
            loss: scalar of this replica.
            dense: [B, N].
            labels: [B, K].
            weight: [B, 1].
            rows: [B, P, D] of each group.
            weights: of each name.
        """

        def look() -> tf.Tensor:
            flags = [
                tf.reduce_any(_wrong(dense), axis=0),
                tf.stack([tf.reduce_any(_wrong(labels)), tf.reduce_any(_wrong(weight))]),
                *(self._by_table(rows[group]) for group in self._groups),
                tf.reshape(tf.stack([tf.reduce_any(_wrong(weights[name])) for name in self._weights]), [-1]),
            ]
            return tf.cast(tf.concat(flags, axis=0), tf.float64)

        return tf.cond(tf.math.is_finite(loss), lambda: tf.zeros([len(self.names)], tf.float64), look)

    def _by_table(self, rows: tf.Tensor) -> tf.Tensor:
        wrong = tf.cast(tf.reduce_any(_wrong(rows), axis=[0, 2]), tf.int32)
        return tf.math.unsorted_segment_max(wrong, self._table_of_position, self._num_tables) > 0


def _wrong(values: tf.Tensor) -> tf.Tensor:
    return ~tf.math.is_finite(values)
