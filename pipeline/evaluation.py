"""All figures of a scored split: of the whole with intervals, by slice, and what a reliability diagram shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline import metrics
from pipeline.bootstrap import interval, resampled
from pipeline.evaluate_spec import EvaluateSpec
from pipeline.ranking_metrics import average_precision, expected_calibration_error, ndcg, recall, reliability
from pipeline.scoring import ScoredRows, read_rows
from pipeline.slices import activity_slices, value_slices
from preprocessing.dataset import Dataset
from preprocessing.dictionaries import as_one_array
from preprocessing.spec import Roles

__all__ = ["columns_needed", "draw", "evaluate_label", "labelled", "slice_masks"]

Mask = npt.NDArray[np.bool_]


def columns_needed(spec: EvaluateSpec, roles: Roles) -> tuple[str, ...]:
    """Returns the columns of the rows that evaluation looks at."""
    named = (roles.user, roles.request, *(part.column for part in spec.slices))
    return tuple(dict.fromkeys(name for name in named if name is not None))


def _unit_codes(columns: pa.Table, name: str | None) -> npt.NDArray[np.int64] | None:
    """Returns a number for each distinct value, -1 for a missing one, [N]; None without a column."""
    if name is None:
        return None
    encoded = as_one_array(columns.column(name))
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    return np.asarray(encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def slice_masks(spec: EvaluateSpec, columns: pa.Table, dataset: Dataset) -> dict[str, Mask]:
    """Returns the rows of each slice, [N], by its name."""
    masks: dict[str, Mask] = {}
    for part in spec.slices:
        values = columns.column(part.column)
        if part.by == "activity":
            seen = [table.column(part.column) for table in read_rows(dataset, "train", columns=[part.column])]
            masks |= dict(activity_slices(part, values, seen=seen))
        else:
            masks |= dict(value_slices(part, values))
    return masks


def evaluate_label(
    scored: ScoredRows, k: int, *, spec: EvaluateSpec, roles: Roles, masks: Mapping[str, Mask], seed: int
) -> dict[str, Any]:
    """Returns the figures of label `k`: by name, with "intervals", "slices" and "reliability" beside them.

    A figure that is undefined is None: JSON knows no NaN.
    """
    users, lists = _unit_codes(scored.columns, roles.user), _unit_codes(scored.columns, roles.request)
    y, p, w = scored.labels[:, k], scored.scores[:, k], scored.weights
    found: dict[str, Any] = _figures(y, p, w, users)
    if lists is not None:
        found |= _list_figures(y, p, w, _nobody_apart(lists), spec.top_k)
    curve = reliability(y, p, w)
    return {
        **_plain(found),
        "intervals": _intervals(scored, k, spec=spec, roles=roles, seed=seed),
        "slices": {
            name: _plain(_figures(y[rows], p[rows], w[rows], None if users is None else users[rows]))
            for name, rows in masks.items()
        },
        "reliability": {
            "scores": curve.scores.tolist(),
            "labels": curve.labels.tolist(),
            "weights": curve.weights.tolist(),
        },
    }


def _figures(
    y: npt.ArrayLike, p: npt.ArrayLike, w: npt.ArrayLike, users: npt.NDArray[np.int64] | None
) -> dict[str, float]:
    groups = None if users is None else _nobody_apart(users)
    found = metrics.evaluate(y, p, weights=w, groups=groups)
    return found | {
        "pr_auc": average_precision(y, p, w),
        "ece": expected_calibration_error(y, p, w),
    }


def _list_figures(
    y: npt.ArrayLike, p: npt.ArrayLike, w: npt.ArrayLike, lists: npt.NDArray[np.int64], k: int
) -> dict[str, float]:
    of_ndcg = ndcg(y, p, lists=lists, k=k, weights=w)
    of_recall = recall(y, p, lists=lists, k=k, weights=w)
    return {"ndcg": of_ndcg.value, "recall": of_recall.value, "num_lists": float(of_ndcg.num_lists)}


def _nobody_apart(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns codes in which each row of nobody is a group of its own, so that it says nothing of groups."""
    alone = int(codes.max(initial=-1)) + 1 + np.arange(codes.size)
    return np.where(codes < 0, alone, codes)


def _intervals(scored: ScoredRows, k: int, *, spec: EvaluateSpec, roles: Roles, seed: int) -> dict[str, list[float]]:
    if not spec.resamples:
        return {}
    draws = draw(scored, k, {"model": scored.scores[:, k]}, spec=spec, roles=roles, seed=seed)["model"]
    found = {name: interval(values, confidence=spec.confidence) for name, values in draws.items()}
    return {name: [between.low, between.high] for name, between in found.items() if between is not None}


def draw(
    scored: ScoredRows,
    k: int,
    models: Mapping[str, npt.NDArray[Any]],
    *,
    spec: EvaluateSpec,
    roles: Roles,
    seed: int,
    rows: Mask | slice = slice(None),
) -> dict[str, dict[str, npt.NDArray[np.float64]]]:
    """Returns the metrics of models on resampled rows of label `k`; see `bootstrap.resampled`.

    Args:
        scored: the rows, [N].
        k: the label.
        models: probabilities of that label by model, [N].
        spec: how many resamples.
        roles: by whom and in which lists.
        seed: of the draws.
        rows: which of them; all by default.
    """
    users, lists = (_unit_codes(scored.columns, name) for name in (roles.user, roles.request))
    num_rows = len(scored.labels)
    return resampled(
        scored.labels[rows, k],
        {name: scores[rows] for name, scores in models.items()},
        users=(np.full(num_rows, -1) if users is None else users)[rows],
        weights=scored.weights[rows],
        lists=None if lists is None else _nobody_apart(lists)[rows],
        top_k=spec.top_k,
        num_resamples=spec.resamples,
        seed=seed,
    )


def _plain(figures: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def labelled(figures: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> dict[str, Any]:
    """Returns the figures of a split: those of the first label, and with several all of them below `labels`."""
    first = dict(figures[0])
    return first if len(labels) == 1 else first | {"labels": dict(zip(labels, map(dict, figures), strict=True))}
