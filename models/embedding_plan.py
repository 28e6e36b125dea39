"""Which rows of which table live where: an `EmbeddingPlan`, computed by arithmetic before TensorFlow starts.

Tables of one kind of placement share a shelf, a space of row numbers with one storage for each weight group:

    embedding     width D, the vectors of the interactions and the deep part
    first_order   width 1, the weights of the linear (wide) part; apart from the vectors, because slicing one
                  column out of a fused row costs more than a second gather

Row g of a shelf of S shards lies on shard g mod S, at position g div S. Row `id` of a table is row
`offset + id * stride` of its shelf, which says all placements in one way:

    mirrored      S = 1, stride 1: the one shard is copied to each replica
    sharded       S = R, stride 1: consecutive rows on consecutive replicas
    table_wise    S = R, stride R: all rows on the replica offset mod R
    partitioned   S = 1, stride 1: parameter servers cut the shelf as they like

Sharded and table-wise tables share the shelf `distributed`, so that one exchange serves both. Each shelf has a
scratch row that belongs to no table: positions that must not count (padding in a list, rows of weight zero) look
it up, so that shapes stay static and no row of a table is touched for them. `R` is the number of replicas.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal

from models.config import OptimizerSpec
from models.slots import SLOTS
from preprocessing.errors import ConfigError

__all__ = ["EMBEDDING", "FIRST_ORDER", "EmbeddingPlan", "Part", "Placed", "Shelf", "StoragePlan", "TableRows"]

EMBEDDING = "embedding"
FIRST_ORDER = "first_order"

Placed = Literal["mirrored", "sharded", "table_wise", "partitioned"]
ShelfKind = Literal["mirrored", "distributed", "partitioned"]
SHELF_OF: dict[Placed, ShelfKind] = {
    "mirrored": "mirrored",
    "sharded": "distributed",
    "table_wise": "distributed",
    "partitioned": "partitioned",
}


@dataclasses.dataclass(frozen=True)
class TableRows:
    """Where the rows of a logical table lie: row `id` is row `offset + id * stride` of its shelf.

    Attributes:
        name: of the table.
        num_rows: its rows.
        placement: what was asked for, or what `auto` chose.
        offset: row of its shelf that holds id 0.
        stride: between the rows of consecutive ids.
        lookups: positions of an example that look the table up.
    """

    name: str
    num_rows: int
    placement: Placed
    offset: int
    stride: int
    lookups: int


@dataclasses.dataclass(frozen=True)
class Part:
    """The rows of a table on one shard: ids `first`, `first + step`, ... below the table's number of rows."""

    shard: int
    first: int
    step: int

    def ids(self, num_rows: int) -> range:
        """Returns the ids of a table of so many rows."""
        return range(self.first, num_rows, self.step)


@dataclasses.dataclass(frozen=True)
class Shelf:
    """A space of row numbers.

    Attributes:
        kind: how its shards are held.
        shard_rows: rows of tables on each shard; one entry for each of its S shards.
        columns: the positions of an example that look up here, in order.
    """

    kind: ShelfKind
    shard_rows: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def num_shards(self) -> int:
        """S."""
        return len(self.shard_rows)

    @property
    def scratch_row(self) -> int:
        """The row for positions that must not count: the one after all rows of shard 0."""
        return self.shard_rows[0] * self.num_shards

    @property
    def num_rows(self) -> int:
        """Rows of all tables, without the scratch row."""
        return sum(self.shard_rows)

    @property
    def end(self) -> int:
        """A bound above every row number."""
        return (max(self.shard_rows) + 1) * self.num_shards


@dataclasses.dataclass(frozen=True)
class StoragePlan:
    """The weights of one group, on every shelf."""

    group: str
    width: int
    init_scale: float
    optimizer: OptimizerSpec

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the optimizer's state arrays, each as large as the weights."""
        return SLOTS[self.optimizer.kind]

    @property
    def row_values(self) -> int:
        """Numbers that a row takes: weights and slots."""
        return self.width * (1 + len(self.slots))


@dataclasses.dataclass(frozen=True)
class EmbeddingPlan:
    """Tables on shelves, the storages of each shelf, and how rows travel between replicas."""

    num_replicas: int
    tables: tuple[TableRows, ...]
    storages: tuple[StoragePlan, ...]
    shelves: tuple[Shelf, ...]
    num_partitions: int = 0
    exchange: Literal["all_gather", "all_to_all"] = "all_to_all"
    exchange_dtype: Literal["float32", "bfloat16"] = "float32"
    dedupe: bool = True

    @functools.cached_property
    def _tables(self) -> dict[str, TableRows]:
        return {table.name: table for table in self.tables}

    def table(self, name: str) -> TableRows:
        """Returns where a table lies.

        Raises:
            ConfigError: if there is no such table.
        """
        if name not in self._tables:
            raise ConfigError(f"no embedding table {name!r}; the schema has {sorted(self._tables)}")
        return self._tables[name]

    def shelf(self, table: TableRows) -> Shelf:
        """Returns the shelf of a table."""
        return next(shelf for shelf in self.shelves if shelf.kind == SHELF_OF[table.placement])

    def owner(self, table: TableRows) -> int | None:
        """Returns the replica that holds all of a table-wise table; None for any other."""
        return table.offset % self.num_replicas if table.placement == "table_wise" else None

    def parts(self, table: TableRows) -> tuple[Part, ...]:
        """Returns how the rows of a table are spread over the shards of its shelf; empty parts are left out."""
        shards = self.shelf(table).num_shards
        if table.stride % shards == 0:
            return (Part(table.offset % shards, 0, 1),)
        parts = [Part((table.offset + first) % shards, first, shards) for first in range(min(shards, table.num_rows))]
        return tuple(sorted(parts, key=lambda part: part.shard))

    @property
    def row_values(self) -> int:
        """Numbers that one row of a table takes in all groups: weights and slots."""
        return sum(storage.row_values for storage in self.storages)

    @property
    def counts_rows(self) -> bool:
        """Whether an optimizer goes by how often a batch has each row."""
        return any(storage.optimizer.cowclip is not None for storage in self.storages)

    def bytes_on(self, replica: int, *, itemsize_bytes: int = 4) -> int:
        """Returns what one replica holds in weights and optimizer slots; nothing of partitioned tables."""
        held = [
            shelf.shard_rows[replica % shelf.num_shards] + 1 for shelf in self.shelves if shelf.kind != "partitioned"
        ]
        return sum(held) * self.row_values * itemsize_bytes

    def bytes_per_replica(self, *, itemsize_bytes: int = 4) -> int:
        """Returns what the fullest replica holds in weights and optimizer slots."""
        return max(self.bytes_on(replica, itemsize_bytes=itemsize_bytes) for replica in range(self.num_replicas))
