"""Which rows of which table live where: an `EmbeddingPlan`, computed by arithmetic before TensorFlow starts.

All tables share one row layout: table after table, then one scratch row that belongs to no table. Positions that
must not count (padding in a list, rows of weight zero) look up the scratch row, so that shapes stay static and no
row of a table is touched for them. On that layout lies one storage for each weight group:

    embedding     width D, the vectors of the interactions and the deep part
    first_order   width 1, the weights of the linear (wide) part; apart from the vectors, because slicing one
                  column out of a fused row costs more than a second gather

A placement says what of a storage a replica holds. `mirrored`: all of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from models.config import ModelSpec, OptimizerSpec, OptimizersSpec
from models.update_rules import SLOTS
from preprocessing.errors import ConfigError
from preprocessing.schema import DatasetSchema, TableSchema

__all__ = ["EMBEDDING", "FIRST_ORDER", "EmbeddingPlan", "StoragePlan", "TableRows", "plan_embeddings"]

EMBEDDING = "embedding"
FIRST_ORDER = "first_order"


@dataclasses.dataclass(frozen=True)
class TableRows:
    """Where the rows of a logical table lie in the layout: `offset` to `offset + num_rows - 1`."""

    name: str
    num_rows: int
    offset: int


@dataclasses.dataclass(frozen=True)
class StoragePlan:
    """The weights of one group: one row for each row of the layout."""

    group: str
    width: int
    init_scale: float
    optimizer: OptimizerSpec

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the optimizer's state arrays, each as large as the weights."""
        return SLOTS[self.optimizer.kind]


@dataclasses.dataclass(frozen=True)
class EmbeddingPlan:
    """Tables on one row layout, their storages, and the placement of both."""

    placement: Literal["mirrored"]
    tables: tuple[TableRows, ...]
    storages: tuple[StoragePlan, ...]

    @property
    def scratch_row(self) -> int:
        """The row after all tables, for positions that must not count."""
        return sum(table.num_rows for table in self.tables)

    def table(self, name: str) -> TableRows:
        """Returns where a table lies.

        Raises:
            ConfigError: if there is no such table.
        """
        for table in self.tables:
            if table.name == name:
                return table
        raise ConfigError(f"no embedding table {name!r}; the schema has {sorted(table.name for table in self.tables)}")

    def bytes_per_replica(self, *, itemsize_bytes: int = 4) -> int:
        """Returns what one replica holds in weights and optimizer slots."""
        widths = sum(storage.width * (1 + len(storage.slots)) for storage in self.storages)
        return (self.scratch_row + 1) * widths * itemsize_bytes


def _stack(tables: Sequence[TableSchema]) -> tuple[TableRows, ...]:
    stacked, offset = [], 0
    for table in tables:
        stacked.append(TableRows(name=table.name, num_rows=table.num_rows, offset=offset))
        offset += table.num_rows
    return tuple(stacked)


def wide_optimizer(spec: ModelSpec, *, optimizers: OptimizersSpec) -> OptimizerSpec:
    """Returns the optimizer of the first-order weights: as declared, or the network's default."""
    if optimizers.wide is not None:
        return optimizers.wide
    if spec.kind == "wide_deep":
        return OptimizerSpec(kind="ftrl", learning_rate=0.05)
    return optimizers.tables


def plan_embeddings(
    schema: DatasetSchema, spec: ModelSpec, *, optimizers: OptimizersSpec, groups: Sequence[str]
) -> EmbeddingPlan:
    """Returns the plan for all tables of `schema` with a storage for each of `groups`."""
    known = {
        EMBEDDING: StoragePlan(EMBEDDING, spec.embedding_dim, spec.embedding_init_scale, optimizers.tables),
        # Linear weights start at zero, as in Guo et al. (2017) and McMahan et al. (2013).
        FIRST_ORDER: StoragePlan(FIRST_ORDER, 1, 0.0, wide_optimizer(spec, optimizers=optimizers)),
    }
    return EmbeddingPlan("mirrored", _stack(schema.tables), tuple(known[group] for group in groups))
