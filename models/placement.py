"""From a schema and a spec to an `EmbeddingPlan`: where each table goes, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.config import NETWORK_KINDS, EmbeddingsSpec, ModelSpec, OptimizerSpec, OptimizersSpec
from models.embedding_plan import (
    EMBEDDING,
    FIRST_ORDER,
    SHELF_OF,
    EmbeddingPlan,
    Placed,
    Shelf,
    StoragePlan,
    TableRows,
)
from preprocessing.errors import ConfigError
from preprocessing.schema import DatasetSchema, TableSchema

__all__ = [
    "EMBEDDING",
    "FIRST_ORDER",
    "EmbeddingPlan",
    "StoragePlan",
    "TableRows",
    "plan_embeddings",
    "positions_of",
    "rows_on",
    "weight_groups",
    "wide_optimizer",
]

_WITH_FIRST_ORDER = frozenset({"deepfm", "wide_deep"})


def weight_groups(kind: str) -> tuple[str, ...]:
    """Returns the weight groups that a network reads of each table; a user's own is imported to know.

    Raises:
        ConfigError: if it cannot be imported.
    """
    if kind in NETWORK_KINDS:
        reads = kind in _WITH_FIRST_ORDER
    else:
        from models.own_network import reads_first_order  # imports TensorFlow, which planning does not need

        reads = reads_first_order(kind)
    return (EMBEDDING, FIRST_ORDER) if reads else (EMBEDDING,)


def positions_of(schema: DatasetSchema) -> list[str]:
    """Returns the table that each position of an example looks up: id fields, then the cells of each list."""
    lists = [field.table for field in schema.list_fields for _ in range(field.length)]
    return [field.table for field in schema.id_fields] + lists


def wide_optimizer(spec: ModelSpec, *, optimizers: OptimizersSpec) -> OptimizerSpec:
    """Returns the optimizer of the first-order weights: as declared, or the network's default."""
    if optimizers.wide is not None:
        return optimizers.wide
    if spec.kind == "wide_deep":
        return OptimizerSpec(kind="ftrl", learning_rate=0.05)
    return optimizers.tables


def plan_embeddings(
    schema: DatasetSchema,
    spec: ModelSpec,
    *,
    optimizers: OptimizersSpec,
    groups: Sequence[str],
    num_replicas: int = 1,
    num_partitions: int = 0,
    itemsize_bytes: int = 4,
) -> EmbeddingPlan:
    """Returns the plan for all tables of `schema` with a storage for each of `groups`.

    Args:
        schema: tables and the fields that look them up.
        spec: width of the vectors, and the section `embeddings`.
        optimizers: decide on the slots.
        groups: weight groups, see `weight_groups`.
        num_replicas: R, over all workers.
        num_partitions: parameter servers that hold the tables; 0: the replicas hold them.
        itemsize_bytes: of a weight.

    Raises:
        ConfigError: if a table is named that does not exist, a placement cannot be had, or the budget is too small.
    """
    known = {
        EMBEDDING: StoragePlan(EMBEDDING, spec.embedding_dim, spec.embedding_init_scale, optimizers.tables),
        # Linear weights start at zero, as in Guo et al. (2017) and McMahan et al. (2013).
        FIRST_ORDER: StoragePlan(FIRST_ORDER, 1, 0.0, wide_optimizer(spec, optimizers=optimizers)),
    }
    storages = tuple(known[group] for group in groups)
    row_bytes = itemsize_bytes * sum(storage.row_values for storage in storages)
    embeddings = spec.embeddings
    placements = _placements(
        schema, embeddings, row_bytes=row_bytes, num_replicas=num_replicas, num_partitions=num_partitions
    )
    tables, shelves = _lay_out(schema, placements, num_replicas=num_replicas)
    plan = EmbeddingPlan(
        num_replicas=num_replicas,
        tables=tables,
        storages=storages,
        shelves=shelves,
        num_partitions=num_partitions,
        exchange="all_gather" if embeddings.exchange == "all_gather" else "all_to_all",
        exchange_dtype=embeddings.exchange_dtype,
        dedupe=_dedupes(embeddings),
    )
    _check_budget(plan, embeddings, itemsize_bytes=itemsize_bytes)
    return plan


def _dedupes(spec: EmbeddingsSpec) -> bool:
    if spec.exchange == "all_gather" and spec.dedupe == "on":
        raise ConfigError(
            "model.embeddings.dedupe: all_gather sends arrays of one size, which distinct rows cannot shorten; "
            "set dedupe to auto, or exchange to all_to_all"
        )
    return spec.exchange != "all_gather" and spec.dedupe != "off"


def _placements(
    schema: DatasetSchema, spec: EmbeddingsSpec, *, row_bytes: int, num_replicas: int, num_partitions: int
) -> dict[str, Placed]:
    unknown = sorted(set(spec.tables) - {table.name for table in schema.tables})
    if unknown:
        raise ConfigError(
            f"model.embeddings.tables: no embedding table {unknown[0]!r}; "
            f"the schema has {sorted(table.name for table in schema.tables)}"
        )
    return {
        table.name: _placed(table, spec, row_bytes=row_bytes, num_replicas=num_replicas, partitioned=num_partitions > 0)
        for table in schema.tables
    }


def _placed(
    table: TableSchema, spec: EmbeddingsSpec, *, row_bytes: int, num_replicas: int, partitioned: bool
) -> Placed:
    """Returns the placement of one table; on one replica all tables are whole, whatever was asked for."""
    wanted = spec.tables.get(table.name, spec.placement)
    key = f"model.embeddings.tables.{table.name}" if table.name in spec.tables else "model.embeddings.placement"
    if partitioned:
        if wanted not in ("auto", "partitioned"):
            raise ConfigError(
                f"{key}: {wanted} needs replicas in step, but parameter servers hold the tables; use auto"
            )
        return "partitioned"
    if wanted == "partitioned":
        raise ConfigError(
            f"{key}: partitioned needs parameter servers, strategy.kind: parameter_server; use auto or sharded"
        )
    if num_replicas == 1:
        return "mirrored"
    if wanted == "auto":
        return "mirrored" if table.num_rows * row_bytes < spec.mirrored_below_bytes else "sharded"
    return wanted


def _lay_out(
    schema: DatasetSchema, placements: Mapping[str, Placed], *, num_replicas: int
) -> tuple[tuple[TableRows, ...], tuple[Shelf, ...]]:
    """Returns where tables lie on their shelves, in the order of the schema, and the shelves."""
    positions = positions_of(schema)
    offsets, shard_rows = {}, {}
    for placement in ("mirrored", "sharded", "partitioned"):
        offset = 0
        for table in schema.tables:
            if placements[table.name] == placement:
                offsets[table.name] = offset
                offset += table.num_rows
        shard_rows[placement] = offset
    distributed = [len(range(replica, shard_rows["sharded"], num_replicas)) for replica in range(num_replicas)]
    whole = [table for table in schema.tables if placements[table.name] == "table_wise"]
    offsets |= _balance(whole, distributed)
    tables = tuple(
        TableRows(
            name=table.name,
            num_rows=table.num_rows,
            placement=placements[table.name],
            offset=offsets[table.name],
            stride=num_replicas if placements[table.name] == "table_wise" else 1,
            lookups=positions.count(table.name),
        )
        for table in schema.tables
    )
    sizes = {
        "mirrored": (shard_rows["mirrored"],),
        "distributed": tuple(distributed),
        "partitioned": (shard_rows["partitioned"],),
    }
    kinds = {table.name: SHELF_OF[table.placement] for table in tables}
    shelves = [
        Shelf(kind, rows, tuple(i for i, name in enumerate(positions) if kinds[name] == kind))  # type: ignore[arg-type]
        for kind, rows in sizes.items()
        if kind in kinds.values()
    ]
    return tables, tuple(shelves)


def _balance(tables: Sequence[TableSchema], shard_rows: list[int]) -> dict[str, int]:
    """Gives each table to the replica with the fewest rows, largest table first; returns the tables' offsets.

    Ties go to the table that comes first and to the lowest replica. `shard_rows` grows by what is given.
    """
    offsets = {}
    # All whole tables lie behind the sharded rows, at one height, so that shard g mod R holds g div R.
    heights = [max(shard_rows, default=0)] * len(shard_rows)
    for table in sorted(tables, key=lambda table: -table.num_rows):
        owner = heights.index(min(heights))
        offsets[table.name] = heights[owner] * len(shard_rows) + owner
        heights[owner] += table.num_rows
    for replica, height in enumerate(heights if tables else ()):
        shard_rows[replica] = height
    return offsets


def _check_budget(plan: EmbeddingPlan, spec: EmbeddingsSpec, *, itemsize_bytes: int) -> None:
    """Refuses what does not fit, naming the table that takes most of the fullest replica."""
    needed = plan.bytes_per_replica(itemsize_bytes=itemsize_bytes)
    if spec.budget_bytes is None or needed <= spec.budget_bytes:
        return
    fullest = max(range(plan.num_replicas), key=lambda replica: plan.bytes_on(replica, itemsize_bytes=itemsize_bytes))
    worst = max(plan.tables, key=lambda table: rows_on(plan, table, replica=fullest))
    size = rows_on(plan, worst, replica=fullest) * plan.row_values * itemsize_bytes
    raise ConfigError(
        f"model.embeddings.budget_bytes: {spec.budget_bytes:,} bytes a replica, but replica {fullest} of "
        f"{plan.num_replicas} would hold {needed:,}; most of it is table {worst.name!r} ({worst.placement}, "
        f"{worst.num_rows:,} rows, {size:,} bytes there). {_ways_out(plan, worst)}"
    )


def rows_on(plan: EmbeddingPlan, table: TableRows, *, replica: int) -> int:
    """Returns how many rows of a table one replica holds."""
    if table.placement == "partitioned":
        return 0
    shards = plan.shelf(table).num_shards
    parts = [part for part in plan.parts(table) if part.shard == replica % shards]
    return sum(len(part.ids(table.num_rows)) for part in parts)


def _ways_out(plan: EmbeddingPlan, table: TableRows) -> str:
    ways = ["raise the budget", "use more replicas", "lower model.embedding_dim", "raise the feature's min_count"]
    if plan.num_replicas > 1 and table.placement != "sharded":
        ways.insert(0, f"set model.embeddings.tables.{table.name}: sharded")
    if any(storage.optimizer.kind in ("adam", "ftrl") for storage in plan.storages):
        ways.append("choose adagrad or sgd, which keep fewer slots")
    return f"Ways out: {', '.join(ways)}"
