"""Embedding tables on parameter servers: each holds every S-th row, workers fetch and update only what they look up.

Row g of the plan's partitioned shelf lies on server g mod S at position g div S: ids are ordered by count, so a cut
into blocks would send nearly all traffic to the first server. Slots lie beside their rows, and the update of a row
is computed there: ids and summed gradients travel to it, looked-up rows back. Workers do not wait for each other;
two that update one row at the same moment may lose one of the two moves, as in Hogwild (Recht et al. 2011).

Letters: `B` batch, `P` positions, `D` width, `U` distinct rows, `S` servers that hold tables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from models.embedding_plan import EmbeddingPlan, Shelf, StoragePlan, TableRows
from models.initial_rows import initial_rows
from models.routes import Arriving, Route
from models.row_sums import RowSums
from models.sparse_optimizers import Distinct, apply_rows, sum_duplicates
from models.tables import WEIGHTS, Arrays, Routes
from models.update_rules import initial_slot

__all__ = ["ParameterServers", "PartitionedTables", "num_shards"]

_CHUNK_ROWS = 1 << 16  # bounds the memory of making and copying rows


@dataclasses.dataclass(frozen=True)
class ParameterServers:
    """Devices of the servers, such as '/job:ps/task:0/device:CPU:0', and the least bytes that are worth a piece."""

    devices: tuple[str, ...]
    min_shard_bytes: int = 1 << 18


def num_shards(total_bytes: int, *, servers: int, min_shard_bytes: int) -> int:
    """Returns S: as many servers as there are, but no piece smaller than the bound."""
    return max(1, min(servers, total_bytes // min_shard_bytes))


class PartitionedTables:
    """All tables of a plan on parameter servers, with the face of `tables.EmbeddingTables`."""

    def __init__(self, plan: EmbeddingPlan, servers: ParameterServers, *, seed: int, dtype: tf.DType) -> None:
        self.plan = plan
        self._dtype = dtype
        (self._shelf,) = (shelf for shelf in plan.shelves if shelf.columns)
        total = (self._shelf.num_rows + 1) * plan.row_values * dtype.size
        self._devices = servers.devices[
            : num_shards(total, servers=len(servers.devices), min_shard_bytes=servers.min_shard_bytes)
        ]
        self._shards = {storage.group: self._create(storage) for storage in plan.storages}
        self._storages = {storage.group: storage for storage in plan.storages}
        for table in plan.tables:
            self._initialise(table, seed=seed)

    def _create(self, plan: StoragePlan) -> tuple[Arrays, ...]:
        shape = (-(-(self._shelf.num_rows + 1) // len(self._devices)), plan.width)
        shards = []
        for device in self._devices:
            with tf.device(device):
                arrays = {WEIGHTS: tf.Variable(tf.zeros(shape, self._dtype), name=plan.group)}
                for slot in plan.slots:
                    first = initial_slot(plan.optimizer, slot)
                    arrays[slot] = tf.Variable(tf.fill(shape, tf.constant(first, self._dtype)), name=slot)
            shards.append(arrays)
        return tuple(shards)

    def _initialise(self, table: TableRows, *, seed: int) -> None:
        for storage in self.plan.storages:
            for start in range(0, table.num_rows if storage.init_scale else 0, _CHUNK_ROWS):
                ids = range(start, min(start + _CHUNK_ROWS, table.num_rows))
                rows = initial_rows(
                    f"{storage.group}/{table.name}",
                    ids.start,
                    stop=ids.stop,
                    width=storage.width,
                    scale=storage.init_scale,
                    seed=seed,
                    dtype=self._dtype.name,
                )
                self.write(table.name, storage.group, array=WEIGHTS, ids=ids, values=rows)

    @property
    def shelf(self) -> Shelf:
        """The one shelf that all tables are on."""
        return self._shelf

    @property
    def groups(self) -> tuple[str, ...]:
        """The weight groups, in the order of the plan."""
        return tuple(self._shards)

    def arrays(self, group: str) -> tuple[str, ...]:
        """Returns the names of a group's arrays: weights, then the optimizer's slots."""
        return (WEIGHTS, *self._storages[group].slots)

    def width(self, group: str) -> int:
        """Returns D of a group."""
        return self._storages[group].width

    @property
    def dtype(self) -> str:
        """Name of the dtype of all arrays."""
        return str(self._dtype.name)

    def weights(self) -> list[tf.Variable]:
        """Returns the weights of all groups, shard by shard."""
        return [arrays[WEIGHTS] for shards in self._shards.values() for arrays in shards]

    def bytes_held(self) -> list[int]:
        """Returns what the arrays on each server take, measured from the variables."""
        held = [0] * len(self._devices)
        for shards in self._shards.values():
            for i, arrays in enumerate(shards):
                held[i] += sum(variable.dtype.size * variable.shape.num_elements() for variable in arrays.values())
        return held

    def routes(self, rows: tf.Tensor) -> Routes:
        """Returns the way of row numbers int [B, P]: each distinct row is asked for once, on its server."""
        distinct, place = tf.unique(tf.reshape(rows, [-1]))
        membership = Distinct(
            distinct,
            tf.stack([tf.cast(place, tf.int64), tf.range(tf.size(place, tf.int64), dtype=tf.int64)], axis=1),
        )
        by_server, local = self._split(distinct)

        def gather(shards: Sequence[tf.Variable]) -> tf.Tensor:
            found = [tf.gather(shard, wanted) for shard, wanted in zip(shards, local, strict=True)]
            return tf.gather(tf.concat(found, axis=0), tf.gather(_inverse(by_server), place))

        return (Route(gather, lambda: Arriving(distinct, lambda gradients: sum_duplicates(gradients, membership))),)

    def _split(self, rows: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Returns, for each server, the places in `rows` [U] of those that it holds, and their rows there."""
        count = len(self._devices)
        owner = tf.cast(rows % count, tf.int32)
        by_server = tf.dynamic_partition(tf.range(tf.size(rows)), owner, count)
        return by_server, [tf.gather(rows, places) // count for places in by_server]

    def gather(self, routes: Routes) -> dict[str, tf.Tensor]:
        """Returns float [B, P, D] of each group."""
        positions = len(self._shelf.columns)
        return {
            group: tf.reshape(
                routes[0].gather([arrays[WEIGHTS] for arrays in shards]), [-1, positions, self.width(group)]
            )
            for group, shards in self._shards.items()
        }

    def summed(self, routes: Routes, gradients: Mapping[str, tf.Tensor]) -> list[RowSums]:
        """Returns the gradients float [B, P, D] of each group by the distinct rows [U] of the batch that was looked up.

        The rows are those of the shelf: `update` sends each to its server.
        """
        arriving = routes[0].arriving()
        counts = None
        if self.plan.counts_rows:
            num_rows = tf.shape(gradients[self.groups[0]])[0] * len(self._shelf.columns)
            counts = tf.squeeze(arriving.sums(tf.ones([num_rows, 1], self._dtype)), axis=1)
        return [
            RowSums(
                group,
                0,
                arriving.rows,
                arriving.sums(tf.reshape(gradients[group], [-1, self.width(group)])),
                counts,
                True,
            )
            for group in self._shards
        ]

    def update(self, sums: Sequence[RowSums], *, step: tf.Tensor, scale: tf.Tensor) -> None:
        """Applies one optimizer step, each server to its own rows.

        Args:
            sums: what `summed` gave, clipped or not.
            step: int64 scalar, number of updates before this one.
            scale: scalar, multiplies the learning rates.
        """
        by_server, local = self._split(sums[0].rows)
        for one in sums:
            for arrays, places, rows in zip(self._shards[one.group], by_server, local, strict=True):
                mine = tf.gather(one.sums, places)
                counts = None if one.counts is None else tf.gather(one.counts, places)
                with tf.device(arrays[WEIGHTS].device):
                    apply_rows(
                        self._storages[one.group].optimizer,
                        arrays[WEIGHTS],
                        slots={slot: arrays[slot] for slot in self._storages[one.group].slots},
                        rows=rows,
                        gradients=mine,
                        counts=counts,
                        scale=scale,
                        step=step,
                    )

    def held_rows(self, table: str) -> list[range]:
        """Returns the ids of a table whose rows this process can read: all."""
        return [range(self.plan.table(table).num_rows)]

    def read(self, table: str, group: str, *, array: str, ids: range) -> NDArray[np.floating]:
        """Returns rows of a logical table, fetched from the servers."""
        values = np.empty((len(ids), self.width(group)), self.dtype)
        for mine, rows, variable in self._placed(table, group, array=array, ids=ids):
            values[mine] = tf.gather(variable, rows).numpy()
        return values

    def write(self, table: str, group: str, *, array: str, ids: range, values: NDArray[np.floating]) -> None:
        """Sets some rows of a logical table on the servers."""
        for begin in range(0, len(ids), _CHUNK_ROWS):
            chunk, some = values[begin : begin + _CHUNK_ROWS], ids[begin : begin + _CHUNK_ROWS]
            for mine, rows, variable in self._placed(table, group, array=array, ids=some):
                with tf.device(variable.device):
                    variable.scatter_update(tf.IndexedSlices(tf.constant(chunk[mine], self._dtype), rows))

    def _placed(
        self, table: str, group: str, *, array: str, ids: range
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], tf.Variable]]:
        """Yields, for each server with any of `ids`, their places in `ids`, their rows there and the array."""
        placed = self.plan.table(table)
        rows = placed.offset + np.arange(ids.start, ids.stop, ids.step, dtype=np.int64) * placed.stride
        for server, arrays in enumerate(self._shards[group]):
            mine = np.flatnonzero(rows % len(self._devices) == server)
            if mine.size:
                yield mine, rows[mine] // len(self._devices), arrays[array]


def _inverse(by_server: list[tf.Tensor]) -> tf.Tensor:
    """Returns where each of [U] is once they are ordered by server."""
    return tf.math.invert_permutation(tf.concat(by_server, axis=0))
