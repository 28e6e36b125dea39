"""Optimizer settings for a global batch that differs from the one they were found with. s: how many times as large."""

from __future__ import annotations

import math

from models.config import ModelSpec, OptimizerSpec, OptimizersSpec
from models.placement import wide_optimizer
from pipeline.train_spec import TrainSpec

__all__ = ["scaled_optimizers"]


def scaled_optimizers(train: TrainSpec, model: ModelSpec) -> OptimizersSpec:
    """Returns the optimizers for `train.batch_size`, given as for `train.reference_batch_size`.

    linear: every learning rate times s (Goyal et al., 2017, "Accurate, Large Minibatch SGD", section 2.1).
    sqrt: every learning rate times sqrt(s), which keeps the variance of an update (Krizhevsky, 2014, "One weird
    trick for parallelizing convolutional neural networks", section 5).
    cowclip: the rates of table rows as they are and their l2 times s, dense rates times sqrt(s) (Zheng et al., 2022,
    the scaling rule of CowClip): an id's rows meet in one batch instead of several, its gradient clipped by its count.
    """
    optimizers, rule = train.optimizers, train.learning_rate_scaling
    if rule == "none" or train.reference_batch_size is None:
        return optimizers
    ratio = train.batch_size / train.reference_batch_size
    factor = ratio if rule == "linear" else math.sqrt(ratio)
    wide = wide_optimizer(model, optimizers=optimizers)
    changed = {"dense": _faster(optimizers.dense, factor)}
    for name, spec in (("tables", optimizers.tables), ("wide", wide)):
        changed[name] = _decaying(spec, ratio) if rule == "cowclip" else _faster(spec, factor)
    return optimizers.model_copy(update=changed)


def _faster(spec: OptimizerSpec, factor: float) -> OptimizerSpec:
    return spec.model_copy(update={"learning_rate": spec.learning_rate * factor})


def _decaying(spec: OptimizerSpec, factor: float) -> OptimizerSpec:
    return spec.model_copy(update={"l2": spec.l2 * factor})
