"""What an `EmbeddingPlan` costs, table by table: memory, and bytes that travel in a training step.

Traffic is what one replica sends, not counting messages to itself, for a global batch of `B` examples: each replica
looks up n = B lookups / R rows of a table, of which at most u = min(n, rows) are distinct. A row of width D in
storage takes D numbers of the exchange's width; i is the size of an index, 4 bytes. With f = (R - 1) / R:

    mirrored                 (R - 1) u (i + D)           what a replica found goes to all others, summed by row
    all_to_all               f u (i + 2 D)               indices and gradients to the owners, rows back
    all_gather               (R - 1) n (i + D) + 2 (R - 1) n D    the reduction of [R n, D] as a ring
    partitioned              u (i + 2 D)                 to and from parameter servers

Without dedupe u is n. All of it is an upper bound: how many rows of a batch are distinct follows from the data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from models.embedding_plan import EmbeddingPlan, TableRows
from models.placement import rows_on

__all__ = ["TableFigures", "bytes_sent_per_step", "describe"]

_INDEX_BYTES = 4


@dataclasses.dataclass(frozen=True)
class TableFigures:
    """One table of a plan; bytes count weights and optimizer slots of all groups.

    Attributes:
        name: of the table.
        num_rows: its rows.
        width: numbers that a lookup of one row fetches, over all groups.
        slots: numbers of optimizer state of one row, over all groups.
        lookups: positions of an example that look it up.
        placement: where its rows are.
        owner: the replica that holds it whole, if it is table-wise.
        total_bytes: of one copy.
        replica_bytes: on the replica that holds most of it; 0 if parameter servers do.
        bytes_per_step: most that one replica sends for it in a step.
    """

    name: str
    num_rows: int
    width: int
    slots: int
    lookups: int
    placement: str
    owner: int | None
    total_bytes: int
    replica_bytes: int
    bytes_per_step: int


def describe(plan: EmbeddingPlan, *, global_batch: int, itemsize_bytes: int = 4) -> Sequence[TableFigures]:
    """Returns the figures of each table, in the order of the schema."""
    return [_figures(plan, table, global_batch=global_batch, itemsize_bytes=itemsize_bytes) for table in plan.tables]


def bytes_sent_per_step(plan: EmbeddingPlan, *, global_batch: int, itemsize_bytes: int = 4) -> int:
    """Returns the most that one replica sends for all tables in a step."""
    return sum(row.bytes_per_step for row in describe(plan, global_batch=global_batch, itemsize_bytes=itemsize_bytes))


def _figures(plan: EmbeddingPlan, table: TableRows, *, global_batch: int, itemsize_bytes: int) -> TableFigures:
    row_bytes = plan.row_values * itemsize_bytes
    width = sum(storage.width for storage in plan.storages)
    held = max(rows_on(plan, table, replica=replica) for replica in range(plan.num_replicas))
    return TableFigures(
        name=table.name,
        num_rows=table.num_rows,
        width=width,
        slots=plan.row_values - width,
        lookups=table.lookups,
        placement=table.placement,
        owner=plan.owner(table),
        total_bytes=table.num_rows * row_bytes,
        replica_bytes=held * row_bytes,
        bytes_per_step=_bytes_per_step(plan, table, width=width, global_batch=global_batch, itemsize=itemsize_bytes),
    )


def _bytes_per_step(plan: EmbeddingPlan, table: TableRows, *, width: int, global_batch: int, itemsize: int) -> int:
    others = plan.num_replicas - 1
    looked_up = -(-global_batch // plan.num_replicas) * table.lookups
    distinct = min(looked_up, table.num_rows) if plan.dedupe else looked_up
    row = width * (2 if plan.exchange_dtype == "bfloat16" else itemsize)
    if table.placement == "partitioned":
        return distinct * (_INDEX_BYTES + 2 * row)
    if table.placement == "mirrored":
        return others * distinct * (_INDEX_BYTES + width * itemsize)
    if plan.exchange == "all_to_all":
        return distinct * (_INDEX_BYTES + 2 * row) * others // plan.num_replicas
    return others * looked_up * (_INDEX_BYTES + 3 * row)
