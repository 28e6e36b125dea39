"""What a training run tells whoever watches it, and what it returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

__all__ = [
    "Evaluated",
    "Finished",
    "Lost",
    "Resumed",
    "Started",
    "Stepped",
    "TrainEvent",
    "TrainResult",
    "Warned",
]


@dataclasses.dataclass(frozen=True)
class Started:
    """The run is ready for its first step; `step` steps are done already."""

    step: int
    total_steps: int
    steps_per_epoch: int
    num_rows: int
    num_replicas: int


@dataclasses.dataclass(frozen=True)
class Resumed:
    """An earlier run of the same folder is continued; `skipped` names checkpoints that could not be read."""

    step: int
    checkpoint: Path
    skipped: tuple[Path, ...]


@dataclasses.dataclass(frozen=True)
class Stepped:
    """Steps were done; `loss` is their mean, the rate None until it is known."""

    step: int
    total_steps: int
    epoch: int
    loss: float
    rows_per_s: float | None
    eta_s: float | None


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """The valid split was scored."""

    step: int
    metrics: Mapping[str, float]
    is_best: bool


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """A finished run.

    Attributes:
        checkpoint: the best weights.
        best_step: the step that they are of.
        num_steps: steps done in all.
        stopped_early: whether `early_stopping.patience` ended the run.
        metrics: of the best weights, by split and name, such as `metrics["test"]["auc"]`.
        scores: files of probabilities float32 [N, K] in record order, by split.
        seconds: time in training steps, of all runs of this folder, without evaluation and start-up.
        rows_per_s: rows per second of that time; 0 if nothing was left to do.
    """

    checkpoint: Path
    best_step: int
    num_steps: int
    stopped_early: bool
    metrics: Mapping[str, Mapping[str, float]]
    scores: Mapping[str, Path]
    seconds: float
    rows_per_s: float


@dataclasses.dataclass(frozen=True)
class Finished:
    """The run is done and its scores are written."""

    result: TrainResult


@dataclasses.dataclass(frozen=True)
class Warned:
    """Something that a person should know of the run, or of the processes that train together."""

    text: str


@dataclasses.dataclass(frozen=True)
class Lost:
    """Another process of the cluster died or failed; this one ends right after."""

    text: str


TrainEvent = Started | Resumed | Stepped | Evaluated | Finished | Warned | Lost
