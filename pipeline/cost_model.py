"""What a training step costs in time and a replica in memory, by arithmetic on stated rates.

For R replicas with B / R rows each of a global batch, W dense weights, V numbers of weights and slots in a table row,
P positions of an example and s bytes a number:

    compute     6 (B / R) W / flops                        2 W a row forward, 4 W backward (Kaplan et al. 2020)
    rows        (B / R) P s (2 V + 3 D) / memory rate      V read and written, D read, pooled, a gradient
    exchange    bytes that a replica sends for its tables / bandwidth     see models.plan_figures
    reduction   2 (R - 1) / R W s / bandwidth              a ring
    latency     one for each collective of a step

Terms are added: no overlap is assumed. It is a model: what it leaves out (input, kernels' start, skew of ids) makes
real steps slower, overlap makes them faster.
"""

from __future__ import annotations

import dataclasses
import itertools
import re

from models.config import ModelSpec, OptimizersSpec
from models.embedding_plan import EmbeddingPlan
from models.plan_figures import bytes_sent_per_step
from models.slots import SLOTS
from preprocessing.errors import ConfigError
from preprocessing.schema import DatasetSchema

__all__ = ["Memory", "Rates", "StepCost", "dense_weights", "memory_of", "parse_quantity", "step_cost"]

_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BYTES = 4
_DENSE_COLLECTIVES = 3  # weights of the batch, gradients, loss
_EXCHANGE_COLLECTIVES = 4  # counts, indices, rows, gradients


@dataclasses.dataclass(frozen=True)
class Rates:
    """What a replica can do. The defaults are about an 80 GB accelerator among 8 on one switch; state your own.

    Attributes:
        flops: multiplications and additions a second that dense layers reach.
        memory: bytes a second from and to its own memory, for rows at random places.
        bandwidth: bytes a second that it sends to others.
        latency_s: of one collective operation.
    """

    flops: float = 30e12
    memory: float = 500e9
    bandwidth: float = 100e9
    latency_s: float = 50e-6


@dataclasses.dataclass(frozen=True)
class StepCost:
    """Seconds of the parts of a step, and bytes that a replica sends in it."""

    compute_s: float
    rows_s: float
    exchange_s: float
    reduction_s: float
    latency_s: float
    exchange_bytes: int
    reduction_bytes: int

    @property
    def total_s(self) -> float:
        """Of the whole step."""
        return self.compute_s + self.rows_s + self.exchange_s + self.reduction_s + self.latency_s


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on the fullest replica."""

    tables: int
    dense: int
    activations: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.tables + self.dense + self.activations


def dense_weights(schema: DatasetSchema, spec: ModelSpec) -> int:
    """Returns W: the weights of all dense layers, biases left out; of a network of one's own, as if it was an MLP."""
    width = (len(schema.id_fields) + len(schema.list_fields)) * spec.embedding_dim + len(schema.dense)
    layers = [width, *spec.hidden_units]
    if spec.kind == "dlrm":
        return _dlrm_weights(schema, spec)
    total = sum(before * after for before, after in itertools.pairwise(layers))
    if spec.kind == "dcn":
        return total + spec.cross_layers * width * width + (width + layers[-1]) * len(schema.labels)
    return total + (layers[-1] + len(schema.dense)) * len(schema.labels)


def _dlrm_weights(schema: DatasetSchema, spec: ModelSpec) -> int:
    num_dense, width = len(schema.dense), spec.embedding_dim
    vectors = len(schema.id_fields) + len(schema.list_fields) + bool(num_dense)
    bottom = [num_dense, *spec.bottom_units, width] if num_dense else []
    top = [vectors * (vectors - 1) // 2 + (width if num_dense else 0), *spec.hidden_units, len(schema.labels)]
    return sum(before * after for layers in (bottom, top) for before, after in itertools.pairwise(layers))


def attention_products(schema: DatasetSchema, spec: ModelSpec) -> int:
    """Returns how often a row's attention units multiply."""
    layers = [3 * spec.embedding_dim, *spec.attention.hidden_units, 1]
    cells = sum(field.length for field in schema.list_fields if field.name in spec.attention.targets)
    return cells * sum(before * after for before, after in itertools.pairwise(layers))


def memory_of(
    plan: EmbeddingPlan, schema: DatasetSchema, spec: ModelSpec, *, optimizers: OptimizersSpec, global_batch: int
) -> Memory:
    """Returns what the fullest replica holds: tables, dense weights and slots, and a batch on its way."""
    rows = -(-global_batch // plan.num_replicas)
    fields = (len(schema.id_fields) + len(schema.list_fields)) * spec.embedding_dim
    positions = sum(table.lookups for table in plan.tables) * spec.embedding_dim
    # Looked-up rows, pooled fields and every layer, with their gradients.
    activations = 2 * rows * (positions + fields + sum(spec.hidden_units)) * _BYTES
    dense = dense_weights(schema, spec) * (2 + len(SLOTS[optimizers.dense.kind])) * _BYTES
    return Memory(plan.bytes_per_replica(), dense, activations)


def step_cost(
    plan: EmbeddingPlan, schema: DatasetSchema, spec: ModelSpec, *, global_batch: int, rates: Rates
) -> StepCost:
    """Returns the cost of a step of `global_batch` rows."""
    replicas = plan.num_replicas
    rows, weights = -(-global_batch // replicas), dense_weights(schema, spec)
    lookups = sum(table.lookups for table in plan.tables)
    width = sum(storage.width for storage in plan.storages)
    row_bytes = rows * lookups * _BYTES * (2 * plan.row_values + 3 * width)
    sent = bytes_sent_per_step(plan, global_batch=global_batch)
    reduced = 2 * (replicas - 1) * weights * _BYTES // replicas
    shelves = sum(bool(shelf.columns) for shelf in plan.shelves)
    collectives = 0 if replicas == 1 else _DENSE_COLLECTIVES + _EXCHANGE_COLLECTIVES * shelves
    return StepCost(
        compute_s=6 * rows * (weights + attention_products(schema, spec)) / rates.flops,
        rows_s=row_bytes / rates.memory,
        exchange_s=sent / rates.bandwidth,
        reduction_s=reduced / rates.bandwidth,
        latency_s=collectives * rates.latency_s,
        exchange_bytes=sent,
        reduction_bytes=reduced,
    )


def parse_quantity(text: str, *, unit: str, flag: str) -> float:
    """Returns such as 8e10 of '80GB' or 3e11 of '300GB/s', decimal multiples.

    Raises:
        ConfigError: if it is no positive number with this unit or none.
    """
    match = re.fullmatch(rf"\s*([0-9]*\.?[0-9]+)\s*([KMGTP]?)(?:{re.escape(unit)})?\s*", text, re.IGNORECASE)
    if match is None or float(match[1]) <= 0:
        raise ConfigError(f"{flag} {text}: a positive quantity such as 80G{unit} is expected")
    return float(match[1]) * _UNITS[match[2].upper()]
