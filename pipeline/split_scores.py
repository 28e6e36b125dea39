"""The trainer's own scores of a split: every row once, in record order.

Shapes: N rows, K labels.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.metrics import auc, log_loss
from pipeline.record_faults import reading
from pipeline.records import WHOLE, Share, evaluation_batches
from pipeline.train_step import Score
from preprocessing.dataset import Dataset
from preprocessing.errors import CorruptError

__all__ = ["SplitScores", "collect_scores", "score_records", "split_metrics", "write_scores"]


@dataclasses.dataclass(frozen=True)
class SplitScores:
    """Probabilities float32 [N, K], labels float32 [N, K], weights float32 [N]."""

    scores: npt.NDArray[np.float32]
    labels: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]


def score_records(
    score: Score, dataset: Dataset, split: str, *, batch_size: int, multiple_of: int = 1, share: Share = WHOLE
) -> SplitScores:
    """Returns what `score` of `train_step.build_score` says of every row; `share` is what this process parses.

    Raises:
        CorruptError: if the number of records is not the manifest's.
    """
    batches = evaluation_batches(dataset, split, batch_size=batch_size, multiple_of=multiple_of, share=share)
    return collect_scores(((int(count), score(batch).numpy()) for count, batch in batches), dataset, split)


def collect_scores(batches: Iterable[tuple[int, npt.NDArray[np.float32]]], dataset: Dataset, split: str) -> SplitScores:
    """Returns the scores of a split from (true rows, [P, 2 K + 1]) of each batch, in record order.

    Raises:
        CorruptError: if the number of records is not the manifest's.
    """
    num_rows, num_labels, done = dataset.num_rows(split), len(dataset.schema.labels), 0
    found = np.empty((num_rows, 2 * num_labels + 1), np.float32)
    with reading(dataset, split):
        for count, values in batches:
            rows = slice(done, done + count)
            done = rows.stop
            if done <= num_rows:
                found[rows] = values[:count]
    if done != num_rows:
        raise CorruptError(
            f"{dataset.folder}: split {split!r} has {done} records, its manifest says {num_rows}; run preprocess again"
        )
    scores, labels, weights = np.split(found, [num_labels, 2 * num_labels], axis=1)
    return SplitScores(np.ascontiguousarray(scores), labels, weights[:, 0])


def split_metrics(split: SplitScores, labels: tuple[str, ...]) -> dict[str, float]:
    """Returns `auc` and `log_loss`, means over the labels; with several labels those of each too, as `auc/LABEL`."""
    figures = {
        f"{name}/{label}": metric(split.labels[:, index], split.scores[:, index], split.weights)
        for name, metric in (("auc", auc), ("log_loss", log_loss))
        for index, label in enumerate(labels)
    }
    means = {name: float(np.mean([figures[f"{name}/{label}"] for label in labels])) for name in ("auc", "log_loss")}
    return means if len(labels) == 1 else means | figures


def write_scores(path: Path, scores: npt.NDArray[np.float32]) -> None:
    """Writes an .npy file so that a reader sees all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        np.save(file, scores, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
