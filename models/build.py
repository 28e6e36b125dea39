"""From schema and spec to a model. A new network is one more line in `NETWORKS`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from models.config import ModelSpec, OptimizersSpec
from models.dcn import DCN
from models.deepfm import DeepFM
from models.initial_rows import MAX_WIDTH
from models.placement import EMBEDDING, FIRST_ORDER, plan_embeddings
from models.ranking_model import Network, RankingModel
from models.replicas import Replicas
from models.tables import EmbeddingTables
from models.weights import WeightMaker
from models.wide_deep import WideDeep
from preprocessing.errors import ConfigError
from preprocessing.schema import DatasetSchema

__all__ = ["NETWORKS", "NetworkKind", "build_model"]


@dataclasses.dataclass(frozen=True)
class NetworkKind:
    """How a network is made, and the weight groups that it reads of each table."""

    make: Callable[..., Network]
    groups: tuple[str, ...] = (EMBEDDING, FIRST_ORDER)


NETWORKS: dict[str, NetworkKind] = {
    "deepfm": NetworkKind(DeepFM),
    "wide_deep": NetworkKind(WideDeep),
    "dcn": NetworkKind(DCN, groups=(EMBEDDING,)),
}


def _check(schema: DatasetSchema, spec: ModelSpec, *, replicas: Replicas) -> None:
    if not schema.id_fields and not schema.list_fields:
        raise ConfigError("features: a model needs at least one feature with ids; all of these are plain numbers")
    if spec.embedding_dim > MAX_WIDTH:
        raise ConfigError(f"model.embedding_dim must be at most {MAX_WIDTH}, not {spec.embedding_dim}")
    if spec.jit_compile and spec.batch_norm:
        raise ConfigError("model.jit_compile: moving averages of model.batch_norm cannot be compiled; turn one off")
    if spec.jit_compile and replicas.count > 1:
        raise ConfigError(f"model.jit_compile works on one replica, not on {replicas.count}; set it to false")


def build_model(
    schema: DatasetSchema,
    spec: ModelSpec,
    *,
    optimizers: OptimizersSpec,
    seed: int,
    strategy: tf.distribute.Strategy | None = None,
) -> RankingModel:
    """Returns a new model whose weights follow from `seed` alone, whatever the replicas.

    Call it outside of `strategy.scope()`.

    Raises:
        ConfigError: if schema, spec and strategy do not fit together.
        TrainingError: if called inside of a strategy's scope.
    """
    replicas = Replicas(strategy)
    _check(schema, spec, replicas=replicas)
    kind = NETWORKS[spec.kind]
    dtype = tf.float64 if spec.precision == "float64" else tf.float32
    plan = plan_embeddings(schema, spec, optimizers=optimizers, groups=kind.groups)
    tables = EmbeddingTables(plan, replicas, seed=seed, dtype=dtype)
    weights = WeightMaker(replicas, seed=seed, dtype=dtype)
    network = kind.make(
        weights,
        spec,
        num_fields=len(schema.id_fields) + len(schema.list_fields),
        num_dense=len(schema.dense),
        num_labels=len(schema.labels),
    )
    return RankingModel(
        schema, spec, optimizers=optimizers, tables=tables, network=network, weights=weights, replicas=replicas
    )
