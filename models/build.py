"""From schema and spec to a model. A new network is one more line in `NETWORKS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

from models.attention import TargetAttention
from models.config import (
    TABLE_SHARD_BYTES,
    EmbeddingsSpec,
    ModelSpec,
    OptimizerSpec,
    OptimizersSpec,
    TableDtype,
)
from models.dcn import DCN
from models.deepfm import DeepFM
from models.dlrm import DLRM
from models.inference_tables import InferenceTables
from models.initial_rows import MAX_WIDTH
from models.own_network import make_own_network
from models.partitioned_tables import ParameterServers, PartitionedTables
from models.placement import plan_embeddings, weight_groups
from models.position import FixedPosition, PositionTower
from models.ranking_model import Network, RankingModel
from models.replicas import Replicas
from models.tables import EmbeddingTables
from models.weights import WeightMaker
from models.wide_deep import WideDeep
from preprocessing.errors import ConfigError
from preprocessing.schema import DatasetSchema

__all__ = ["NETWORKS", "build_inference_model", "build_model"]


NETWORKS: dict[str, Callable[..., Network]] = {"deepfm": DeepFM, "wide_deep": WideDeep, "dcn": DCN, "dlrm": DLRM}


def _network(make: WeightMaker, schema: DatasetSchema, spec: ModelSpec) -> Network:
    in_tower = spec.position is not None and spec.position.kind == "tower"
    maker: Callable[..., Network] = NETWORKS.get(spec.kind, make_own_network)
    return maker(
        make,
        spec,
        num_fields=len(schema.id_fields) + len(schema.list_fields) - in_tower,
        num_dense=len(schema.dense),
        num_labels=len(schema.labels),
    )


def _position(make: WeightMaker, schema: DatasetSchema, spec: ModelSpec) -> FixedPosition | PositionTower | None:
    if spec.position is None:
        return None
    if spec.position.kind == "fixed":
        return FixedPosition.of(schema, spec.position)
    return PositionTower(make, spec, spec.position, schema=schema)


def _label_weights(schema: DatasetSchema, weights: Mapping[str, float]) -> list[float]:
    unknown = sorted(weights.keys() - set(schema.labels))
    if unknown:
        raise ConfigError(f"train.label_weights: no label {unknown[0]!r}; there are {', '.join(schema.labels)}")
    return [weights.get(label, 1.0) for label in schema.labels]


def _attention(make: WeightMaker, schema: DatasetSchema, spec: ModelSpec) -> TargetAttention | None:
    if not spec.attention.targets:
        return None
    return TargetAttention(make, spec.attention, schema, width=spec.embedding_dim)


def _check(schema: DatasetSchema, spec: ModelSpec, *, replicas: Replicas) -> None:
    if not schema.id_fields and not schema.list_fields:
        raise ConfigError("features: a model needs at least one feature with ids; all of these are plain numbers")
    if spec.embedding_dim > MAX_WIDTH:
        raise ConfigError(f"model.embedding_dim must be at most {MAX_WIDTH}, not {spec.embedding_dim}")
    if spec.jit_compile and spec.batch_norm:
        raise ConfigError("model.jit_compile: moving averages of model.batch_norm cannot be compiled; turn one off")
    if spec.jit_compile and replicas.count > 1:
        raise ConfigError(f"model.jit_compile works on one replica, not on {replicas.count}; set it to false")


def _embeddings(spec: ModelSpec, replicas: Replicas) -> EmbeddingsSpec:
    """Returns where tables may be: as declared, where replicas have storage of their own."""
    if replicas.strategy is None:
        return EmbeddingsSpec()
    if replicas.storage is not None:
        return EmbeddingsSpec(placement="mirrored", exchange="all_gather")
    return spec.embeddings


def build_model(
    schema: DatasetSchema,
    spec: ModelSpec,
    *,
    optimizers: OptimizersSpec,
    seed: int,
    strategy: tf.distribute.Strategy | None = None,
    servers: ParameterServers | None = None,
    label_weights: Mapping[str, float] | None = None,
    accumulate_steps: int = 1,
) -> RankingModel:
    """Returns a new model whose weights follow from `seed` alone, whatever the replicas.

    Call it outside of `strategy.scope()`. Without a strategy all tables are whole, whatever `spec.embeddings` says:
    that is the model to export. With `servers` they hold the tables. The loss is the mean over the labels,
    by `label_weights` where given, else 1. Training steps take their batch in `accumulate_steps` parts.

    Raises:
        ConfigError: if schema, spec and strategy do not fit together.
        TrainingError: if called inside of a strategy's scope.
    """
    replicas = Replicas(strategy)
    _check(schema, spec, replicas=replicas)
    if servers is not None and spec.precision == "mixed_float16":
        raise ConfigError(
            "model.precision: mixed_float16 keeps one loss scale for replicas in step, which workers of parameter "
            "servers are not; use mixed_bfloat16"
        )
    dtype = tf.float64 if spec.precision == "float64" else tf.float32
    plan = plan_embeddings(
        schema,
        spec.model_copy(update={"embeddings": _embeddings(spec, replicas)}),
        optimizers=optimizers,
        groups=weight_groups(spec.kind),
        num_replicas=replicas.count,
        num_partitions=0 if servers is None else len(servers.devices),
        itemsize_bytes=dtype.size,
    )
    tables: EmbeddingTables | PartitionedTables
    if servers is not None:
        tables = PartitionedTables(plan, servers, seed=seed, dtype=dtype)
    else:
        tables = EmbeddingTables(plan, replicas, seed=seed, dtype=dtype)
    weights = WeightMaker(replicas, seed=seed, dtype=dtype)
    network = _network(weights, schema, spec)
    return RankingModel(
        schema,
        spec,
        optimizers=optimizers,
        tables=tables,
        network=network,
        attention=_attention(weights, schema, spec),
        position=_position(weights, schema, spec),
        weights=weights,
        replicas=replicas,
        label_weights=_label_weights(schema, label_weights or {}),
        accumulate_steps=accumulate_steps,
    )


def build_inference_model(
    schema: DatasetSchema,
    spec: ModelSpec,
    *,
    tables: TableDtype = "float32",
    shard_bytes: int = TABLE_SHARD_BYTES,
) -> RankingModel:
    """Returns a model without any optimizer state, in float32, to take a checkpoint's weights and score.

    Args:
        schema: of the dataset that it was trained on.
        spec: the network, as it was trained.
        tables: dtype that the rows of embedding tables are held in.
        shard_bytes: the largest variable that a table is cut into.

    Raises:
        ConfigError: if schema and spec do not fit together.
    """
    replicas = Replicas(None)
    spec = spec.model_copy(update={"precision": "float32", "jit_compile": False, "embeddings": EmbeddingsSpec()})
    _check(schema, spec, replicas=replicas)
    stateless = OptimizerSpec(kind="sgd", learning_rate=1.0)
    optimizers = OptimizersSpec(tables=stateless, wide=stateless, dense=stateless)
    plan = plan_embeddings(
        schema, spec, optimizers=optimizers, groups=weight_groups(spec.kind), num_replicas=1, itemsize_bytes=4
    )
    weights = WeightMaker(replicas, seed=0, dtype=tf.float32)
    return RankingModel(
        schema,
        spec,
        optimizers=optimizers,
        tables=InferenceTables(plan, stored_as=tables, shard_bytes=shard_bytes),
        network=_network(weights, schema, spec),
        attention=_attention(weights, schema, spec),
        position=_position(weights, schema, spec),
        weights=weights,
        replicas=replicas,
    )
