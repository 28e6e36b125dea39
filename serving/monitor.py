"""Requests held against the training data: drift, missing values, unknown tokens, scores.

Columns and scores are profiled as preprocessing profiles rows, and drift is that of `preprocessing.drift`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.drift import ColumnDrift, drift
from preprocessing.profile import ColumnProfile, Profile
from preprocessing.raw_values import is_list
from serving.monitor_spec import MonitorSpec

__all__ = ["Monitored", "Watched", "monitor", "oov_share"]


@dataclasses.dataclass(frozen=True)
class Watched:
    """A column of requests, or a score, beside that of the training data.

    Attributes:
        name: of the column, or of the label whose score it is.
        is_score: whether it is a score.
        drift: how it has moved; None where the two cannot be compared.
        missing: share of rows without a value, in training and now.
        oov_share: of the values now that the vocabulary does not have; None without a vocabulary.
        means: of numbers, in training and now.
        findings: what passes a limit, as sentences.
    """

    name: str
    is_score: bool
    drift: ColumnDrift | None
    missing: tuple[float | None, float]
    oov_share: float | None
    means: tuple[float | None, float | None]
    findings: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Monitored:
    """The result: what was compared, by falling drift, and what is wrong with the log as a whole."""

    num_rows: int
    reference_rows: int
    columns: tuple[Watched, ...]
    findings: tuple[str, ...]

    def all_findings(self) -> list[str]:
        """Returns every finding."""
        return [*self.findings, *(text for column in self.columns for text in column.findings)]


def monitor(
    *,
    reference: Profile,
    current: Profile,
    reference_scores: Profile | None,
    current_scores: Profile,
    oov_shares: Mapping[str, float],
    limits: MonitorSpec,
) -> Monitored:
    """Returns requests held against the training data.

    Args:
        reference: raw columns of the training data.
        current: those of the requests.
        reference_scores: of the same model on rows it was judged by, a column a label; None where unknown.
        current_scores: those of the requests.
        oov_shares: by column, see `oov_share`.
        limits: what is too much.
    """
    columns = _watched(reference, current, oov_shares, limits, is_score=False)
    scores = _watched(reference_scores, current_scores, {}, limits, is_score=True)
    found = []
    if current.num_rows < limits.min_rows:
        found.append(f"the log has {current.num_rows} rows, fewer than serve.monitor.min_rows, {limits.min_rows}")
    by_drift = sorted([*scores, *columns], key=lambda one: -(one.drift.psi if one.drift else 0.0))
    return Monitored(current.num_rows, reference.num_rows, tuple(by_drift), tuple(found))


def _watched(
    reference: Profile | None,
    current: Profile,
    oov_shares: Mapping[str, float],
    limits: MonitorSpec,
    *,
    is_score: bool,
) -> Iterator[Watched]:
    moved = {} if reference is None else drift(reference, current)
    for name, column in current.columns.items():
        before = None if reference is None else reference.columns.get(name)
        one = Watched(
            name=name,
            is_score=is_score,
            drift=moved.get(name),
            missing=(None if before is None else before.missing_share(), column.missing_share()),
            oov_share=oov_shares.get(name),
            means=(None if before is None else _mean(before), _mean(column)),
            findings=(),
        )
        yield dataclasses.replace(one, findings=tuple(_findings(one, limits)))


def _findings(one: Watched, limits: MonitorSpec) -> Iterator[str]:
    what = f"score {one.name}" if one.is_score else f"column {one.name}"
    before, now = one.missing
    max_psi = limits.max_score_psi if one.is_score else limits.max_psi
    # Chance is the mean of what samples of this size give by themselves; twice that is rare.
    if one.drift is not None and max_psi is not None and one.drift.psi > max_psi + 2 * one.drift.chance:
        yield f"{what}: PSI {one.drift.psi:.3g} is above {max_psi:g} (by chance alone {one.drift.chance:.2g})"
    if before is not None and limits.max_missing_increase is not None and now - before > limits.max_missing_increase:
        limit = limits.max_missing_increase
        yield f"{what}: {now:.1%} missing, {before:.1%} in training; the increase may be {limit:g}"
    if one.oov_share is not None and limits.max_oov_share is not None and one.oov_share > limits.max_oov_share:
        yield f"{what}: {one.oov_share:.1%} of the values are not in the vocabulary, above {limits.max_oov_share:g}"


def _mean(column: ColumnProfile) -> float | None:
    histogram = column.values
    if histogram is None or not histogram.total():
        return None
    return float(np.average(histogram.edges(), weights=histogram.counts))


def oov_share(values: pa.ChunkedArray, tokens: pa.Array) -> float:
    """Returns the share of the values, elements of lists, that are no token; missing ones are not counted.

    Args:
        values: text, integers, or lists of them.
        tokens: large_binary, distinct; an integer is its digits.
    """
    if is_list(values.type):
        values = pc.list_flatten(values)
    values = values.drop_null()
    if pa.types.is_integer(values.type):
        values = values.cast(pa.string())
    if not len(values):
        return 0.0
    known = pc.is_in(values.cast(pa.large_binary()), value_set=tokens)
    return 1.0 - float(pc.sum(known).as_py()) / len(values)
