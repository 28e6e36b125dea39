"""The candidate and the live model on the same rows: what the gate holds against each other.

The live model is scored from raw rows through its own SavedModel, for its vocabulary is another.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.bootstrap import upper_bound
from pipeline.config import Config
from pipeline.evaluate_spec import GateRule
from pipeline.evaluation import columns_needed, draw, slice_masks
from pipeline.gate import Compared
from pipeline.scoring import ScoredRows, loaded_model, read_rows, score_rows, score_split
from preprocessing.dataset import Dataset
from preprocessing.errors import ArtefactError

__all__ = ["Contest", "folder_mb", "measured_ms"]

_LOWER_IS_BETTER = {"log_loss", "normalised_entropy", "ece", "size_mb", "latency_ms"}
_CALLS, _WARM_UP = 100, 10

Floats = npt.NDArray[np.float64]


class Contest:
    """A candidate and the live model, compared figure by figure; what is expensive is done once."""

    def __init__(
        self,
        config: Config,
        dataset: Dataset,
        *,
        candidate: Path,
        scores: Callable[[str], npt.NDArray[np.float32]],
        live: Path,
    ) -> None:
        """Remembers what is compared; nothing is read yet.

        Args:
            config: gives slices, resamples and seed.
            dataset: whose rows both score.
            candidate: its SavedModel.
            scores: of a split, as the candidate's evaluation stored them: float32 [N, K].
            live: the SavedModel of the live version.
        """
        self._config = config
        self._dataset = dataset
        self._models = [candidate, live]
        self._scores = scores
        self._scored: dict[str, ScoredRows] = {}
        self._masks: dict[str, dict[str, npt.NDArray[np.bool_]]] = {}
        self._drawn: dict[tuple[str, str | None, str | None], dict[str, dict[str, Floats]]] = {}

    def compare(self, rule: GateRule) -> Compared:
        """Returns the figures that a rule compares.

        Raises:
            ArtefactError: if the live model cannot score these rows, or there is no such slice.
        """
        if rule.metric in ("size_mb", "latency_ms"):
            candidate, live = self._sizes() if rule.metric == "size_mb" else self._latencies
            return Compared(candidate, live, loss=candidate - live)
        key = (rule.split, rule.slice, rule.label)
        if key not in self._drawn:
            self._drawn[key] = self._draw(*key)
        candidates, lives = (self._drawn[key][model][rule.metric] for model in ("candidate", "live"))
        loss = upper_bound(_loss(rule.metric, candidates, lives), confidence=rule.confidence)
        return Compared(float(candidates.mean()), float(lives.mean()), loss)

    def _draw(self, split: str, part: str | None, label: str | None) -> dict[str, dict[str, Floats]]:
        spec, roles = self._config.evaluate, self._config.data.roles
        if split not in self._scored:
            keep = columns_needed(spec, roles)
            self._scored[split] = score_split(
                self._models[1], self._dataset, split, keep=keep, batch_size=spec.batch_size
            )
        scored = self._scored[split]
        k = 0 if label is None else self._dataset.schema.labels.index(label)
        models = {"candidate": self._scores(split)[:, k], "live": scored.scores[:, k]}
        rows = slice(None) if part is None else self._rows_of(split, part)
        return draw(scored, k, models, spec=spec, roles=roles, seed=self._config.seed, rows=rows)

    def _rows_of(self, split: str, part: str) -> npt.NDArray[np.bool_]:
        if split not in self._masks:
            self._masks[split] = slice_masks(self._config.evaluate, self._scored[split].columns, self._dataset)
        masks = self._masks[split]
        if part not in masks:
            raise ArtefactError(f"split {split!r} has no slice {part!r}; it has {', '.join(masks)}")
        return masks[part]

    def _sizes(self) -> tuple[float, float]:
        candidate, live = map(folder_mb, self._models)
        return candidate, live

    @functools.cached_property
    def _latencies(self) -> tuple[float, float]:
        candidate, live = measured_ms(self._models, self._dataset, num_rows=self._config.evaluate.latency_rows)
        return candidate, live


def _loss(metric: str, candidate: Floats, live: Floats) -> Floats:
    """Returns how much worse the candidate is, in each resample."""
    if metric == "calibration":
        return np.abs(candidate - 1.0) - np.abs(live - 1.0)
    return candidate - live if metric in _LOWER_IS_BETTER else live - candidate


def folder_mb(folder: Path) -> float:
    """Returns the megabytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def measured_ms(models: Sequence[Path], dataset: Dataset, *, num_rows: int) -> list[float]:
    """Returns the median time of scoring the first test rows by each model, in milliseconds.

    They are called in turn, so that what disturbs one disturbs all.

    Raises:
        ArtefactError: if a model cannot score the rows.
    """
    rows = pa.concat_tables(read_rows(dataset, "test")).slice(0, num_rows)
    times: list[list[float]] = [[] for _ in models]
    with contextlib.ExitStack() as stack:
        loaded = [stack.enter_context(loaded_model(model)) for model in models]
        for call in range(_WARM_UP + _CALLS):
            for servable, taken in zip(loaded, times, strict=True):
                start = time.perf_counter()
                score_rows(servable, rows, dataset.schema.labels)
                if call >= _WARM_UP:
                    taken.append(time.perf_counter() - start)
    return [float(np.median(taken)) * 1e3 for taken in times]
