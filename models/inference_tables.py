"""Embedding tables that are only looked up: no slots, one storage for each group, cut into variables by row range.

A variable is made, filled, saved and restored as a whole; with parts of limited size neither an export nor a load
needs a second copy of a table, and a 2 GB bound of whatever handles one tensor is never met. Letters: `B` batch,
`P` positions, `D` width, `n` positions of a batch together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from models.config import TABLE_SHARD_BYTES, TableDtype
from models.embedding_plan import EmbeddingPlan
from models.routes import Arriving, Route
from models.row_sums import RowSums
from models.tables import WEIGHTS, Routes
from preprocessing.errors import ArtefactError, TrainingError

__all__ = ["InferenceTables"]

_CHUNK_ROWS = 1 << 16
_DTYPES = {"float32": tf.float32, "float16": tf.float16}


class InferenceTables:
    """All tables of a plan of one replica. Rows are stored in `stored_as` and looked up as float32."""

    # Of the checkpoints that rows come from.
    dtype = "float32"

    def __init__(
        self, plan: EmbeddingPlan, *, stored_as: TableDtype = "float32", shard_bytes: int = TABLE_SHARD_BYTES
    ) -> None:
        occupied = [shelf for shelf in plan.shelves if shelf.columns]
        if len(occupied) != 1 or occupied[0].num_shards != 1:
            raise TrainingError("tables for inference are of a plan with one replica, whose tables share one shelf")
        self.plan = plan
        self._stored_as = _DTYPES[stored_as]
        (self._shelf,) = occupied
        self._end = self._shelf.num_rows + 1  # the scratch row is the last
        row_bytes = max(storage.width for storage in plan.storages) * self._stored_as.size
        self._part_rows = max(1, shard_bytes // row_bytes)
        self._parts = {storage.group: self._made(storage.group, storage.width) for storage in plan.storages}

    def _made(self, group: str, width: int) -> tuple[tf.Variable, ...]:
        sizes = [min(self._part_rows, self._end - start) for start in range(0, self._end, self._part_rows)]
        return tuple(
            tf.Variable(tf.zeros((rows, width), self._stored_as), trainable=False, name=f"{group}_{part}")
            for part, rows in enumerate(sizes)
        )

    @property
    def groups(self) -> tuple[str, ...]:
        """The weight groups, in the order of the plan."""
        return tuple(self._parts)

    @property
    def num_parts(self) -> int:
        """How many variables a group is cut into."""
        return len(self._parts[self.groups[0]])

    def bytes_held(self) -> list[int]:
        """Returns what the variables of the one replica take."""
        return [sum(variable.dtype.size * int(variable.shape.num_elements()) for variable in self.weights())]

    def arrays(self, group: str) -> tuple[str, ...]:
        """Returns the names of a group's arrays: the weights."""
        return (WEIGHTS,) if group in self._parts else ()

    def width(self, group: str) -> int:
        """Returns D of a group."""
        return int(self._parts[group][0].shape[1])

    def weights(self) -> list[tf.Variable]:
        """Returns all variables."""
        return [variable for parts in self._parts.values() for variable in parts]

    def held_rows(self, table: str) -> list[range]:
        """Returns the ids of a table whose rows are here: all, in one range."""
        return [range(self.plan.table(table).num_rows)]

    def routes(self, rows: tf.Tensor) -> Routes:
        """Returns the way of row numbers int [B, P]."""
        return (self._route(tf.reshape(rows, [-1])),)

    def _route(self, rows: tf.Tensor) -> Route:
        if self.num_parts == 1:
            return Route(lambda parts: tf.gather(parts[0], rows), _refuse)
        owner = tf.cast(rows // self._part_rows, tf.int32)
        local = tf.dynamic_partition(rows % self._part_rows, owner, self.num_parts)
        places = tf.dynamic_partition(tf.range(tf.size(rows)), owner, self.num_parts)

        def gather(parts: Sequence[tf.Variable]) -> tf.Tensor:
            found = [tf.gather(part, own) for part, own in zip(parts, local, strict=True)]
            return tf.dynamic_stitch(places, found)

        return Route(gather, _refuse)

    def gather(self, routes: Routes) -> dict[str, tf.Tensor]:
        """Returns float32 [B, P, D] of each group for the positions of the whole schema."""
        return self._gathered(routes, num_positions=len(self._shelf.columns))

    def lookup(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns float32 [B, P, D] of each group for row numbers int [B, P] of any positions."""
        return self._gathered(self.routes(rows), num_positions=int(rows.shape[1]))

    def _gathered(self, routes: Routes, *, num_positions: int) -> dict[str, tf.Tensor]:
        (route,) = routes
        return {
            group: tf.reshape(tf.cast(route.gather(parts), tf.float32), [-1, num_positions, self.width(group)])
            for group, parts in self._parts.items()
        }

    def summed(self, routes: Routes, gradients: Mapping[str, tf.Tensor]) -> list[RowSums]:
        """Raises TrainingError: there are no gradients here."""
        raise TrainingError(f"tables for inference are not updated: {len(routes)} routes, {len(gradients)} gradients")

    def update(self, sums: Sequence[RowSums], *, step: tf.Tensor, scale: tf.Tensor) -> None:
        """Raises TrainingError: there is no optimizer here."""
        raise TrainingError(f"tables for inference are not updated: {len(sums)} sums, step {step}, scale {scale}")

    def read(self, table: str, group: str, *, array: str, ids: range) -> NDArray[np.floating]:
        """Returns rows of a logical table as they are computed with, float32 [len(ids), D]."""
        if array != WEIGHTS:
            raise TrainingError(f"tables for inference hold weights alone, not {array!r}")
        (route,) = self.routes(tf.constant(self._rows(table, ids)[:, None]))
        values: NDArray[np.floating] = tf.cast(route.gather(self._parts[group]), tf.float32).numpy()
        return values

    def _rows(self, table: str, ids: range) -> NDArray[np.int64]:
        placed = self.plan.table(table)
        return placed.offset + np.arange(ids.start, ids.stop, ids.step, dtype=np.int64) * placed.stride

    def write(self, table: str, group: str, *, array: str, ids: range, values: NDArray[np.floating]) -> None:
        """Sets rows of a logical table.

        Raises:
            ArtefactError: if the stored dtype cannot hold a value.
        """
        if array != WEIGHTS:
            raise TrainingError(f"tables for inference hold weights alone, not {array!r}")
        rows = self._rows(table, ids)
        for start in range(0, len(rows), _CHUNK_ROWS):
            self._write(table, group, rows[start : start + _CHUNK_ROWS], values[start : start + _CHUNK_ROWS])

    def _write(self, table: str, group: str, rows: NDArray[np.int64], values: NDArray[np.floating]) -> None:
        with np.errstate(over="ignore"):
            stored = values.astype(self._stored_as.as_numpy_dtype)
        if np.isinf(stored).any() and not np.isinf(values).any():
            raise ArtefactError(
                f"embedding table {table!r} ({group}) has a weight of {np.abs(values).max():.4g}, beyond "
                f"{self._stored_as.name}; set export.tables to float32"
            )
        owners = rows // self._part_rows
        for part in np.unique(owners):
            mine = np.flatnonzero(owners == part)
            slices = tf.IndexedSlices(tf.constant(stored[mine]), rows[mine] % self._part_rows)
            self._parts[group][part].scatter_update(slices)


def _refuse() -> Arriving:
    raise TrainingError("tables for inference are not updated")
