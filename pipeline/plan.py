"""What a training run will be, by arithmetic: tables and where they go, memory, traffic, steps, files, warnings.

Nothing is trained and TensorFlow is not imported. Without a dataset yet, sizes are those that the config declares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from models.embedding_plan import EmbeddingPlan
from models.placement import plan_embeddings, weight_groups
from models.plan_figures import TableFigures, describe
from pipeline import stages
from pipeline.artefacts import open_artefact
from pipeline.config import Config
from pipeline.cost_model import Memory, Rates, StepCost, memory_of, step_cost
from pipeline.declared_schema import declared_schema
from pipeline.epochs import num_steps
from pipeline.train_spec import StrategySpec
from preprocessing.dataset import Dataset, open_dataset
from preprocessing.errors import ArtefactError, ConfigError, SourceError
from preprocessing.schema import DatasetSchema

__all__ = ["RunPlan", "SplitFiles", "plan_run"]

_FEW_STEPS = 10


@dataclasses.dataclass(frozen=True)
class SplitFiles:
    """Files and rows of a split."""

    split: str
    files: int
    rows: int


@dataclasses.dataclass(frozen=True)
class RunPlan:
    """All figures of a run; `splits` and `steps_per_epoch` are empty and None before there is a dataset."""

    num_replicas: int
    num_servers: int
    global_batch: int
    tables: Sequence[TableFigures]
    memory: Memory
    server_bytes: int
    cost: StepCost
    rates: Rates
    splits: tuple[SplitFiles, ...]
    steps_per_epoch: int | None
    total_steps: int | None
    warnings: tuple[str, ...]


def plan_run(
    config: Config, *, replicas: int | None = None, device_memory: int | None = None, rates: Rates | None = None
) -> RunPlan:
    """Returns the plan of the training run of a config.

    Args:
        config: the config.
        replicas: in place of what `strategy` says.
        device_memory: bytes of each replica; None: not checked.
        rates: of the cost model.

    Raises:
        ConfigError: if the tables cannot fit, with the table to blame and ways out.
    """
    dataset = _dataset(config)
    warnings: list[str] = []
    schema = dataset.schema if dataset is not None else _declared(config, warnings)
    count, servers = _processes(config.strategy, warnings if replicas is None else [])
    count = replicas or count
    embeddings = _embeddings(config, schema, replicas=count, servers=servers)
    memory = memory_of(
        embeddings,
        schema,
        config.model,
        optimizers=config.train.optimizers,
        global_batch=config.train.batch_size,
    )
    figures = describe(embeddings, global_batch=config.train.batch_size)
    if device_memory is not None:
        _check_memory(memory, figures, device_memory=device_memory, replicas=count)
    rates = rates or Rates()
    steps = None if dataset is None else num_steps(dataset.num_rows("train"), config.train.batch_size)
    warnings += _warnings(config, steps=steps, replicas=count, dataset=dataset)
    return RunPlan(
        num_replicas=count,
        num_servers=servers,
        global_batch=config.train.batch_size,
        tables=figures,
        memory=memory,
        server_bytes=_server_bytes(figures, servers),
        cost=step_cost(embeddings, schema, config.model, global_batch=config.train.batch_size, rates=rates),
        rates=rates,
        splits=_splits(dataset),
        steps_per_epoch=steps,
        total_steps=None if steps is None else min(steps * config.train.epochs, config.train.max_steps or 10**18),
        warnings=tuple(warnings),
    )


def _dataset(config: Config) -> Dataset | None:
    try:
        return open_dataset(open_artefact(stages.plan("dataset", config, stages.find_inputs(config))).folder)
    except (ArtefactError, SourceError):
        return None


def _declared(config: Config, warnings: list[str]) -> DatasetSchema:
    declared = declared_schema(config.features, labels=[label.name for label in config.data.labels])
    warnings.append("there is no dataset yet: sizes are those that the config declares; rows and steps are not known")
    if declared.bounded:
        warnings.append(f"at most so many rows: {', '.join(declared.bounded)}")
    if declared.unknown:
        warnings.append(
            f"rows not known before preprocessing, counted as empty: {', '.join(declared.unknown)}; "
            "max_size on the feature bounds them"
        )
    return declared.schema


def _processes(spec: StrategySpec, warnings: list[str]) -> tuple[int, int]:
    """Returns how many replicas and parameter servers a strategy has, as far as the config tells."""
    if spec.kind == "one_device":
        return 1, 0
    here = len(spec.devices) or spec.virtual_cpus
    if spec.kind == "parameter_server":
        return 1, len(spec.cluster.servers) if spec.cluster and spec.cluster.servers else 1
    if here is None:
        warnings.append(f"how many devices {spec.kind} finds is not known here, 1 is assumed; say --replicas N")
    workers = len(spec.cluster.workers) if spec.cluster is not None else 1
    return (here or 1) * workers, 0


def _embeddings(config: Config, schema: DatasetSchema, *, replicas: int, servers: int) -> EmbeddingPlan:
    return plan_embeddings(
        schema,
        config.model,
        optimizers=config.train.optimizers,
        groups=weight_groups(config.model.kind),
        num_replicas=replicas,
        num_partitions=servers,
    )


def _check_memory(memory: Memory, tables: Sequence[TableFigures], *, device_memory: int, replicas: int) -> None:
    if memory.total <= device_memory:
        return
    worst = max(tables, key=lambda table: table.replica_bytes)
    left = device_memory - memory.dense - memory.activations
    whole = sum(table.total_bytes for table in tables)
    ways = [f"shard it over {-(-whole // left)} replicas or more" if left > 0 else "lower train.batch_size"]
    ways += ["lower model.embedding_dim", "raise min_count or lower max_size or buckets of its features"]
    if worst.slots > worst.width:
        ways.append("choose adagrad or sgd, which keep fewer slots")
    raise ConfigError(
        f"a replica needs {memory.total:,} bytes (tables {memory.tables:,}, dense {memory.dense:,}, a batch "
        f"{memory.activations:,}), more than the {device_memory:,} of each of {replicas}; most is table "
        f"{worst.name!r} ({worst.placement}, {worst.num_rows:,} rows, {worst.replica_bytes:,} bytes there). "
        f"Ways out: {', '.join(ways)}"
    )


def _server_bytes(tables: Sequence[TableFigures], servers: int) -> int:
    held = sum(table.total_bytes for table in tables if table.placement == "partitioned")
    return -(-held // servers) if servers else 0


def _splits(dataset: Dataset | None) -> tuple[SplitFiles, ...]:
    if dataset is None:
        return ()
    return tuple(SplitFiles(name, len(shards), dataset.num_rows(name)) for name, shards in dataset.splits.items())


def _warnings(config: Config, *, steps: int | None, replicas: int, dataset: Dataset | None) -> list[str]:
    found, batch = [], config.train.batch_size
    if batch % replicas:
        found.append(f"train.batch_size {batch} is not a multiple of {replicas} replicas: each batch is padded")
    if dataset is None or steps is None:
        return found
    rows = dataset.num_rows("train")
    if rows == 0:
        found.append("the training split has no rows: training will be refused")
    elif steps < _FEW_STEPS:
        found.append(f"an epoch is {steps} steps only; a smaller train.batch_size than {batch} trains more often")
    if rows and rows % batch and rows % batch < batch // 2:
        found.append(f"the last batch of an epoch has {rows % batch} of {batch} rows")
    if dataset.num_rows("valid") == 0:
        found.append("no valid split: the last weights will be taken for the best")
    return found
