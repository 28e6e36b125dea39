"""What a training run leaves to look at: TensorBoard's event files and `history.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorboard.plugins.pr_curve.summary import pb as pr_curve

from pipeline.split_scores import SplitScores
from pipeline.train_spec import TensorBoardSpec
from preprocessing.manifest import write_json

__all__ = ["TrainLog"]


class TrainLog:
    """Writes curves under `folder`; a resumed run adds to them."""

    def __init__(self, folder: Path, spec: TensorBoardSpec) -> None:
        self._folder = folder
        self._spec = spec
        self._writer = tf.summary.create_file_writer(str(folder / "tensorboard")) if spec.enabled else None
        self._losses: list[float] = []

    def stepped(
        self,
        step: int,
        *,
        losses: Sequence[float],
        learning_rate: float,
        rows_per_s: float | None,
        out_of_range: int,
        loss_scale: Mapping[str, float],
    ) -> None:
        """Records the losses of the steps up to `step`; a point is their mean over `every_steps` steps or more.

        `out_of_range` counts the ids that no table had, over all steps so far; `loss_scale` is what
        `RankingModel.loss_scale_figures` tells.
        """
        self._losses.extend(losses)
        if len(self._losses) < self._spec.every_steps:
            return
        figures = {
            "train/loss": float(np.mean(self._losses)),
            "train/learning_rate": learning_rate,
            "train/out_of_range": float(out_of_range),
            **{f"train/{name}": value for name, value in loss_scale.items()},
        }
        if rows_per_s is not None:
            figures["train/rows_per_s"] = rows_per_s
        self._losses = []
        self._write(step, figures)

    def evaluated(
        self,
        step: int,
        *,
        metrics: Mapping[str, float],
        weights: Mapping[str, tf.Variable],
        norms: Mapping[str, npt.NDArray[np.floating]],
    ) -> None:
        """Records metrics of the valid split, and histograms of weights and of `row_norms` if asked for."""
        if self._writer is None:
            return
        self._write(step, {f"valid/{name}": value for name, value in metrics.items()})
        if self._spec.histograms:
            with self._writer.as_default():
                for name, variable in weights.items():
                    tf.summary.histogram(f"weights/{name}", variable, step=step)
                for name, lengths in norms.items():
                    tf.summary.histogram(f"row_norms/{name}", lengths, step=step)
        self._writer.flush()

    def scored(self, step: int, scored: SplitScores, labels: Sequence[str]) -> None:
        """Records the precision-recall curve of each label on the valid split."""
        if self._writer is None:
            return
        with self._writer.as_default():
            for k, label in enumerate(labels):
                curve = pr_curve(
                    f"valid/{label}", scored.labels[:, k] > 0.5, scored.scores[:, k], weights=scored.weights
                )
                tf.summary.experimental.write_raw_pb(curve.SerializeToString(), step=step)

    def history(self, evaluations: Sequence[Mapping[str, Any]]) -> None:
        """Writes `history.json`: every evaluation of the run so far."""
        write_json(self._folder / "history.json", {"evaluations": [dict(entry) for entry in evaluations]})

    def close(self) -> None:
        """Flushes what is written."""
        if self._writer is not None:
            self._writer.close()

    def _write(self, step: int, figures: Mapping[str, float]) -> None:
        if self._writer is None:
            return
        with self._writer.as_default():
            for name, value in figures.items():
                tf.summary.scalar(name, value, step=step)
