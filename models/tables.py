"""The rows of all embedding tables: made, looked up, updated, read out and written back.

A storage is a plain variable on each local replica's device, not a mirrored variable: what a replica holds is the
affair of its shelf (see `embedding_plan`), a copy of the one shard or its own shard. Letters: `B` batch of one
replica, `P` positions, `D` width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from models.embedding_plan import EmbeddingPlan, Shelf, StoragePlan, TableRows
from models.exchange import Exchange
from models.initial_rows import initial_rows
from models.replicas import Replicas
from models.routes import Arriving, Route, all_hear_all, held_here, on_one_replica, to_copies, to_owners
from models.row_sums import RowSums
from models.sparse_optimizers import apply_rows
from models.update_rules import initial_slot
from preprocessing.errors import TrainingError

__all__ = ["WEIGHTS", "EmbeddingTables"]

WEIGHTS = "weights"
_CHUNK_ROWS = 1 << 16  # bounds the memory of making and copying rows

Arrays = dict[str, tf.Variable]
Routes = tuple[Route, ...]


@dataclasses.dataclass(frozen=True)
class _Storage:
    """A group's rows on one shelf: for each local replica its arrays by name, weights and slots."""

    plan: StoragePlan
    shelf: Shelf
    shards: tuple[Arrays, ...]

    def all(self, array: str) -> list[tf.Variable]:
        """Returns one array of each local replica."""
        return [arrays[array] for arrays in self.shards]


class EmbeddingTables:
    """All tables of a plan on the replicas of this process."""

    def __init__(self, plan: EmbeddingPlan, replicas: Replicas, *, seed: int, dtype: tf.DType) -> None:
        if tf.distribute.has_strategy():
            raise TrainingError("embedding tables must be built outside of strategy.scope(): they are not mirrored")
        self.plan = plan
        self._replicas = replicas
        self._exchange = Exchange(replicas)
        self._dtype = dtype
        self._storages = {
            storage.group: tuple(self._create(storage, shelf) for shelf in plan.shelves) for storage in plan.storages
        }
        for table in plan.tables:
            self._initialise(table, seed=seed)

    def _create(self, plan: StoragePlan, shelf: Shelf) -> _Storage:
        if self._replicas.storage is not None:  # one copy, which all replicas look up and one updates
            (arrays,) = self._made(plan, shelf, [self._replicas.storage])
            return _Storage(plan, shelf, (arrays,) * len(self._replicas.held))
        return _Storage(plan, shelf, self._made(plan, shelf, self._replicas.devices or (None,)))

    def _made(self, plan: StoragePlan, shelf: Shelf, devices: Sequence[str | None]) -> tuple[Arrays, ...]:
        shards = []
        for replica, device in zip(self._replicas.held, devices, strict=False):
            # The row after the shard's own is the scratch row on shard 0.
            shape = (shelf.shard_rows[replica % shelf.num_shards] + 1, plan.width)
            with tf.device(device):
                arrays = {WEIGHTS: tf.Variable(tf.zeros(shape, self._dtype), name=plan.group)}
                for slot in plan.slots:
                    first = initial_slot(plan.optimizer, slot)
                    arrays[slot] = tf.Variable(tf.fill(shape, tf.constant(first, self._dtype)), name=slot)
            shards.append(arrays)
        return tuple(shards)

    def _initialise(self, table: TableRows, *, seed: int) -> None:
        for storage in self.plan.storages:
            for ids in self.held_rows(table.name) if storage.init_scale else ():
                for start in range(0, len(ids), _CHUNK_ROWS):
                    chunk = ids[start : start + _CHUNK_ROWS]
                    rows = initial_rows(
                        f"{storage.group}/{table.name}",
                        chunk.start,
                        stop=chunk.stop,
                        step=chunk.step,
                        width=storage.width,
                        scale=storage.init_scale,
                        seed=seed,
                        dtype=self._dtype.name,
                    )
                    self.write(table.name, storage.group, array=WEIGHTS, ids=chunk, values=rows)

    @property
    def groups(self) -> tuple[str, ...]:
        """The weight groups, in the order of the plan."""
        return tuple(self._storages)

    def arrays(self, group: str) -> tuple[str, ...]:
        """Returns the names of a group's arrays: weights, then the optimizer's slots."""
        return (WEIGHTS, *self._storages[group][0].plan.slots)

    def width(self, group: str) -> int:
        """Returns D of a group."""
        return self._storages[group][0].plan.width

    @property
    def dtype(self) -> str:
        """Name of the dtype of all arrays."""
        return str(self._dtype.name)

    def weights(self) -> list[tf.Variable]:
        """Returns the variables that inference in this process reads: of each group one copy, or all shards."""
        return [
            variable
            for storages in self._storages.values()
            for storage in storages
            for variable in storage.all(WEIGHTS)[: storage.shelf.num_shards]
        ]

    def bytes_held(self) -> list[int]:
        """Returns what each local replica's arrays take, measured from the variables."""
        held = [0] * len(self._replicas.held)
        for storage in (storage for storages in self._storages.values() for storage in storages):
            for i, arrays in enumerate(storage.shards):
                held[i] += sum(variable.dtype.size * variable.shape.num_elements() for variable in arrays.values())
        return held

    def routes(self, rows: tf.Tensor) -> Routes:
        """Returns the way of row numbers int [B, P] on each shelf; on every replica, if on any."""
        routes = []
        for shelf in self.plan.shelves:
            columns = rows if self._is_only(shelf) else tf.gather(rows, shelf.columns, axis=1)
            routes.append(self._route(tf.reshape(columns, [-1]), shelf))
        return tuple(routes)

    def _is_only(self, shelf: Shelf) -> bool:
        return len(shelf.columns) == sum(len(other.columns) for other in self.plan.shelves)

    def _route(self, rows: tf.Tensor, shelf: Shelf) -> Route:
        replicas, plan = self._replicas, self.plan
        if replicas.count == 1:
            return on_one_replica(rows)
        by_owner = plan.exchange == "all_to_all"
        if shelf.num_shards == 1:
            return to_copies(rows, replicas=replicas, exchange=self._exchange, dedupe=by_owner and plan.dedupe)
        if not replicas.inside():
            return self._outside(rows, shelf)
        dtype = tf.bfloat16 if plan.exchange_dtype == "bfloat16" else None
        if by_owner:
            return to_owners(rows, replicas=replicas, exchange=self._exchange, dedupe=plan.dedupe, travels_as=dtype)
        return all_hear_all(rows, replicas=replicas, travels_as=dtype)

    def _outside(self, rows: tf.Tensor, shelf: Shelf) -> Route:
        if len(self._replicas.held) < shelf.num_shards:
            raise TrainingError(
                f"this process holds {len(self._replicas.held)} of {shelf.num_shards} shards of the embedding tables: "
                "score inside strategy.run, in all workers together"
            )

        def refuse() -> Arriving:
            raise TrainingError("tables are updated inside strategy.run only")

        return held_here(rows, num_shards=shelf.num_shards, refuse=refuse)

    def gather(self, routes: Routes) -> dict[str, tf.Tensor]:
        """Returns float [B, P, D] of each group."""
        return {group: self._gathered(storages, routes) for group, storages in self._storages.items()}

    def _gathered(self, storages: Sequence[_Storage], routes: Routes) -> tf.Tensor:
        parts: list[tf.Tensor] = []
        order: list[int] = []
        for storage, route in zip(storages, routes, strict=True):
            if storage.shelf.columns:
                values = route.gather(storage.all(WEIGHTS))
                parts.append(tf.reshape(values, [-1, len(storage.shelf.columns), storage.plan.width]))
                order += storage.shelf.columns
        if len(parts) == 1:
            return parts[0]
        return tf.gather(tf.concat(parts, axis=1), np.argsort(order), axis=1)

    def summed(self, routes: Routes, gradients: Mapping[str, tf.Tensor]) -> list[RowSums]:
        """Returns the gradients of all replicas by the rows of this one; every replica calls it.

        Args:
            routes: of the batch that this replica looked up.
            gradients: float [B, P, D] of each group.
        """
        found = []
        for i, route in enumerate(routes):
            shelf = self.plan.shelves[i]
            if not shelf.columns:
                continue
            arriving = route.arriving()
            counts = self._counts(arriving, num_rows=tf.shape(gradients[self.groups[0]])[0] * len(shelf.columns))
            for group in self._storages:
                mine = gradients[group]
                columns = mine if self._is_only(shelf) else tf.gather(mine, shelf.columns, axis=1)
                sums = arriving.sums(tf.reshape(columns, [-1, self.width(group)]))
                found.append(RowSums(group, i, arriving.rows, sums, counts, everywhere=shelf.num_shards == 1))
        return found

    def _counts(self, arriving: Arriving, *, num_rows: tf.Tensor) -> tf.Tensor | None:
        """Returns how many of the `num_rows` positions of each replica are of each arriving row, if anyone asks."""
        if not self.plan.counts_rows:
            return None
        return tf.squeeze(arriving.sums(tf.ones([num_rows, 1], self._dtype)), axis=1)

    def update(self, sums: Sequence[RowSums], *, step: tf.Tensor, scale: tf.Tensor) -> None:
        """Applies one optimizer step.

        Args:
            sums: what `summed` gave, clipped or not.
            step: int64 scalar, number of updates before this one.
            scale: scalar, multiplies the learning rates.
        """
        local = self._replicas.local_index()
        for one in sums if self._replicas.writes() else ():
            storage = self._storages[one.group][one.shelf]
            arrays = storage.shards[local]
            apply_rows(
                storage.plan.optimizer,
                arrays[WEIGHTS],
                slots={slot: arrays[slot] for slot in storage.plan.slots},
                rows=one.rows,
                gradients=one.sums,
                counts=one.counts,
                scale=scale,
                step=step,
            )

    def held_rows(self, table: str) -> list[range]:
        """Returns the ids of a table whose rows this process holds, one range for each of its shards."""
        placed = self.plan.table(table)
        held = {replica % self.plan.shelf(placed).num_shards for replica in self._replicas.held}
        return [part.ids(placed.num_rows) for part in self.plan.parts(placed) if part.shard in held]

    def read(self, table: str, group: str, *, array: str, ids: range) -> NDArray[np.floating]:
        """Returns rows of a logical table, without a copy of the whole.

        Raises:
            TrainingError: if another process holds some of them.
        """
        values = np.empty((len(ids), self.width(group)), self.dtype)
        found = np.zeros(len(ids), bool)
        for mine, rows, variable in self._placed(table, group, array=array, ids=ids):
            if not found[mine].all():
                values[mine], found[mine] = tf.gather(variable, rows).numpy(), True
        if not found.all():
            raise TrainingError(f"another process holds row {ids[int(found.argmin())]} of embedding table {table!r}")
        return values

    def write(self, table: str, group: str, *, array: str, ids: range, values: NDArray[np.floating]) -> None:
        """Sets those of some rows of a logical table that this process holds, on every replica that holds them."""
        for begin in range(0, len(ids), _CHUNK_ROWS):
            chunk = values[begin : begin + _CHUNK_ROWS]
            some = ids[begin : begin + _CHUNK_ROWS]
            for mine, rows, variable in self._placed(table, group, array=array, ids=some):
                variable.scatter_update(tf.IndexedSlices(tf.constant(chunk[mine], self._dtype), rows))

    def _placed(
        self, table: str, group: str, *, array: str, ids: range
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], tf.Variable]]:
        """Yields, for each local shard with any of `ids`, their places in `ids`, their rows there and the array."""
        placed = self.plan.table(table)
        storage = next(s for s in self._storages[group] if s.shelf == self.plan.shelf(placed))
        shards = storage.shelf.num_shards
        rows = placed.offset + np.arange(ids.start, ids.stop, ids.step, dtype=np.int64) * placed.stride
        for replica, arrays in zip(self._replicas.held, storage.shards, strict=True):
            mine = np.flatnonzero(rows % shards == replica % shards)
            if mine.size:
                yield mine, rows[mine] // shards, arrays[array]
