"""The rows of all embedding tables: made, looked up, updated, read out and written back.

A storage is a plain variable on each local replica's device, not a mirrored variable: what a replica holds is the
placement's affair. `mirrored` means that all hold all rows; every replica then applies the whole batch's update to
its own copy. Letters: `B` batch of one replica, `P` positions, `D` width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from models.initial_rows import initial_rows
from models.placement import EmbeddingPlan, StoragePlan, TableRows
from models.replicas import Replicas
from models.sparse_optimizers import apply_rows, distinct_rows, sum_duplicates
from models.update_rules import initial_slot
from preprocessing.errors import TrainingError

__all__ = ["WEIGHTS", "EmbeddingTables"]

WEIGHTS = "weights"
_CHUNK_ROWS = 1 << 16  # bounds the memory of making and copying rows

Arrays = dict[str, tf.Variable]


@dataclasses.dataclass(frozen=True)
class _Storage:
    """A storage of the plan and, for each local replica, its arrays by name: weights and slots."""

    plan: StoragePlan
    copies: tuple[Arrays, ...]


class EmbeddingTables:
    """All tables of a plan on the replicas of this process."""

    def __init__(self, plan: EmbeddingPlan, replicas: Replicas, *, seed: int, dtype: tf.DType) -> None:
        if tf.distribute.has_strategy():
            raise TrainingError("embedding tables must be built outside of strategy.scope(): they are not mirrored")
        self.plan = plan
        self._replicas = replicas
        self._dtype = dtype
        self._storages = {storage.group: self._create(storage) for storage in plan.storages}
        for table in plan.tables:
            self._initialise(table, seed=seed)

    def _create(self, plan: StoragePlan) -> _Storage:
        shape = (self.plan.scratch_row + 1, plan.width)
        copies = []
        for device in self._replicas.devices or (None,):
            with tf.device(device):
                arrays = {WEIGHTS: tf.Variable(tf.zeros(shape, self._dtype), name=plan.group)}
                for slot in plan.slots:
                    first = initial_slot(plan.optimizer, slot)
                    arrays[slot] = tf.Variable(tf.fill(shape, tf.constant(first, self._dtype)), name=slot)
            copies.append(arrays)
        return _Storage(plan, tuple(copies))

    def _initialise(self, table: TableRows, *, seed: int) -> None:
        for group, storage in self._storages.items():
            if storage.plan.init_scale == 0.0:
                continue
            for start in range(0, table.num_rows, _CHUNK_ROWS):
                rows = initial_rows(
                    f"{group}/{table.name}",
                    start,
                    stop=min(start + _CHUNK_ROWS, table.num_rows),
                    width=storage.plan.width,
                    scale=storage.plan.init_scale,
                    seed=seed,
                    dtype=self._dtype.name,
                )
                self.write(table.name, group, array=WEIGHTS, start=start, values=rows)

    @property
    def groups(self) -> tuple[str, ...]:
        """The weight groups, in the order of the plan."""
        return tuple(self._storages)

    def arrays(self, group: str) -> tuple[str, ...]:
        """Returns the names of a group's arrays: weights, then the optimizer's slots."""
        return (WEIGHTS, *self._storages[group].plan.slots)

    def width(self, group: str) -> int:
        """Returns D of a group."""
        return self._storages[group].plan.width

    @property
    def dtype(self) -> str:
        """Name of the dtype of all arrays."""
        return str(self._dtype.name)

    def weights(self) -> list[tf.Variable]:
        """Returns the variables that an exported model needs: one copy of each group's weights."""
        return [storage.copies[0][WEIGHTS] for storage in self._storages.values()]

    def gather(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns float [B, P, D] of each group for row numbers int [B, P]."""
        local = self._replicas.local_index()
        return {group: tf.gather(s.copies[local][WEIGHTS], rows) for group, s in self._storages.items()}

    def update(self, rows: tf.Tensor, gradients: Mapping[str, tf.Tensor], *, step: tf.Tensor, scale: tf.Tensor) -> None:
        """Applies one optimizer step with the gradients of all replicas.

        Args:
            rows: int [B, P], as looked up by this replica.
            gradients: float [B, P, D] of each group.
            step: int64 scalar, number of updates before this one.
            scale: scalar, multiplies the learning rates.
        """
        local = self._replicas.local_index()
        distinct = distinct_rows(self._replicas.all_rows(tf.reshape(rows, [-1])))
        for group, storage in self._storages.items():
            mine = tf.reshape(gradients[group], [-1, storage.plan.width])
            arrays = storage.copies[local]
            apply_rows(
                storage.plan.optimizer,
                arrays[WEIGHTS],
                slots={slot: arrays[slot] for slot in storage.plan.slots},
                rows=distinct.rows,
                gradients=sum_duplicates(self._replicas.all_rows(mine), distinct),
                scale=scale,
                step=step,
            )

    def read(self, table: str, group: str, *, array: str, start: int, stop: int) -> NDArray[np.floating]:
        """Returns rows `start` to `stop - 1` of a logical table, without a copy of the whole."""
        offset = self.plan.table(table).offset
        rows = tf.range(offset + start, offset + stop, dtype=tf.int64)
        return np.asarray(tf.gather(self._storages[group].copies[0][array], rows))

    def write(self, table: str, group: str, *, array: str, start: int, values: NDArray[np.floating]) -> None:
        """Sets rows `start` and following of a logical table, on every local replica."""
        first = self.plan.table(table).offset + start
        for begin in range(0, len(values), _CHUNK_ROWS):
            chunk = values[begin : begin + _CHUNK_ROWS]
            rows = tf.range(first + begin, first + begin + len(chunk), dtype=tf.int64)
            for copy in self._storages[group].copies:
                copy[array].scatter_update(tf.IndexedSlices(tf.constant(chunk, self._dtype), rows))
