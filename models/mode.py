"""How a network is run: for a training step, or for inference."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from models.replicas import Replicas

__all__ = ["Inputs", "Mode", "Training"]


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What a network sees of a batch, in the dtype of the weights.

    Attributes:
        embedding: [B, F, D], one vector for each field.
        first_order: [B, F], one linear weight for each field; None for a network without linear part.
        dense: [B, N], numbers.
    """

    embedding: tf.Tensor
    first_order: tf.Tensor | None
    dense: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Training:
    """What layers that differ in training need.

    Attributes:
        step: int64 scalar, number of updates before this one.
        live: float [B, 1], 1 for rows that count and 0 for padding.
        replicas: the replicas that share the global batch.
        first_row: int64 scalar, the row of the global batch that comes first here; None: all of the replica's slice
            is here.
    """

    step: tf.Tensor
    live: tf.Tensor
    replicas: Replicas
    first_row: tf.Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Mode:
    """Precision of the dense layers, and the training step (None: inference)."""

    compute_dtype: tf.DType
    training: Training | None = None
