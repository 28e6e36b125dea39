"""What a training run is driven by: batches, steps and scores, whichever strategy does the work."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from models.ranking_model import RankingModel
from pipeline.records import Share, batch_spec, padded_batch_size, training_batches
from pipeline.split_scores import SplitScores, score_records
from pipeline.train_spec import TrainSpec
from pipeline.train_step import build_execute, build_score
from pipeline.workers import Workers
from preprocessing.dataset import Dataset

__all__ = ["Engine", "in_step"]


@dataclasses.dataclass(frozen=True)
class Engine:
    """The work of a run.

    Attributes:
        batches: (epoch, step of the epoch) -> iterator over the batches from that step on.
        execute: (iterator, steps done before, learning rate scales float32 [N]) -> `train_step.step_figures` of
            each step, float64 [N, 2 + C].
        scores: split -> its scores by the present weights.
        num_replicas: how many share a global batch.
    """

    batches: Callable[[int, int], Iterator[Any]]
    execute: Callable[[Iterator[Any], int, npt.NDArray[np.float32]], npt.NDArray[np.float64]]
    scores: Callable[[str], SplitScores]
    num_replicas: int


def in_step(
    dataset: Dataset,
    *,
    model: RankingModel,
    strategy: tf.distribute.Strategy,
    workers: Workers,
    spec: TrainSpec,
    seed: int,
) -> Engine:
    """Returns the engine of a synchronous strategy: every replica takes its slice of each global batch."""
    num_replicas, share = strategy.num_replicas_in_sync, Share(workers.index, workers.count)
    rows = padded_batch_size(spec.batch_size, multiple_of=num_replicas) // workers.count
    run = build_execute(model, strategy, batch_spec(dataset.schema, num_rows=rows))
    score = build_score(model, strategy)

    def batches(epoch: int, start_step: int) -> Iterator[Any]:
        return iter(
            training_batches(
                dataset,
                "train",
                batch_size=spec.batch_size,
                multiple_of=num_replicas,
                seed=seed,
                epoch=epoch,
                shuffle_rows=spec.shuffle_rows,
                start_step=start_step,
                share=share,
            )
        )

    def execute(iterator: Iterator[Any], step: int, scales: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        return np.asarray(run(iterator, tf.constant(step, tf.int64), tf.constant(scales)).numpy())

    def scores(split: str) -> SplitScores:
        return score_records(
            score, dataset, split, batch_size=spec.evaluate_batch_size, multiple_of=num_replicas, share=share
        )

    return Engine(batches, execute, scores, num_replicas)
