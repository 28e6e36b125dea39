"""How far rows have moved from those of an earlier profile, column by column.

Numbers are cut into at most ten bins of nearly equal size in the reference, a frequent number having one of its own;
text into the twenty most frequent tokens of the reference and the rest. Missing values are one more bin; of lists,
elements are counted and a list without any counts once. So the bins follow from the reference, and are kept with
the figures.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.number_counts import NumberCounts, number_counts
from preprocessing.profile import ColumnProfile, Profile
from preprocessing.shown_text import shown_text
from preprocessing.token_sketch import TokenSketch

__all__ = ["EPSILON", "OTHERS", "Bin", "ColumnDrift", "drift", "jensen_shannon", "psi"]

EPSILON = 1e-4
OTHERS = "all others"  # the bin of tokens beyond the frequent ones
_NUMBER_BINS = 10
_TOKEN_BINS = 20
_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Bin:
    """A bin and the share of values in it, then and now."""

    label: str
    reference: float
    current: float


@dataclasses.dataclass(frozen=True)
class ColumnDrift:
    """What changed in a column.

    Attributes:
        psi: population stability index.
        jensen_shannon: divergence in bits, from 0 to 1.
        chance: the PSI to be expected from samples of this size if nothing has changed.
        new_token_share: of the values now, those whose token the reference has not; None of numbers.
        vanished_token_share: of the values then, those whose token is no longer there; None of numbers.
        bins: in the order of numbers, or by falling frequency in the reference.
    """

    psi: float
    jensen_shannon: float
    chance: float
    new_token_share: float | None
    vanished_token_share: float | None
    bins: tuple[Bin, ...]


def psi(reference: Sequence[float] | _Floats, current: Sequence[float] | _Floats) -> float:
    """Returns the population stability index of two distributions over the same bins; 0 if equal, symmetric.

    sum over bins of (q - p) ln(q / p), with shares below `EPSILON` raised to it, so that an empty bin counts without
    being infinite. It is the symmetric divergence of Jeffreys (1946), "An invariant form for the prior probability in
    estimation problems", equation 1 in discrete form; as a measure of drift, Siddiqi (2006), "Credit Risk Scorecards".

    Args:
        reference: float [bins], shares that sum to 1.
        current: float [bins].
    """
    p, q = (np.maximum(np.asarray(shares, np.float64), EPSILON) for shares in (reference, current))
    return float(((q - p) * np.log(q / p)).sum())


def jensen_shannon(reference: Sequence[float] | _Floats, current: Sequence[float] | _Floats) -> float:
    """Returns the Jensen-Shannon divergence in bits: 0 if equal, 1 if no bin is shared, symmetric.

    H(m) - (H(p) + H(q)) / 2 with m = (p + q) / 2, here as the mean of KL(p || m) and KL(q || m), which are never
    negative. Lin (1991), "Divergence measures based on the Shannon entropy", equation 4.1 with weights of one half.

    Args:
        reference: float [bins], shares that sum to 1.
        current: float [bins].
    """
    p, q = np.asarray(reference, np.float64), np.asarray(current, np.float64)
    middle = (p + q) / 2
    return max(0.0, (_divergence(p, middle) + _divergence(q, middle)) / 2)


def _divergence(p: _Floats, q: _Floats) -> float:
    some = p > 0
    return float((p[some] * np.log2(p[some] / q[some])).sum())


def drift(reference: Profile, current: Profile, *, without: Collection[str] = ()) -> dict[str, ColumnDrift]:
    """Returns the drift of each column of one kind in both profiles, in the order of the current one.

    Args:
        reference: what is compared with.
        current: what is judged.
        without: columns that differ by nature, such as times and row ids.
    """
    if not reference.num_rows or not current.num_rows:
        return {}
    return {
        name: _column_drift(reference.columns[name], column)
        for name, column in current.columns.items()
        if name not in without and name in reference.columns and reference.columns[name].kind == column.kind
    }


def _column_drift(reference: ColumnProfile, current: ColumnProfile) -> ColumnDrift:
    if reference.values is not None and current.values is not None:
        labels, counts = _number_bins(*number_counts(reference, current))
        new = vanished = None
    else:
        limit = min(reference.tokens.complete_to(), current.tokens.complete_to())
        tokens = reference.tokens.up_to(limit), current.tokens.up_to(limit)
        labels, counts = _token_bins(*tokens)
        new, vanished = _unshared(tokens[1], tokens[0]), _unshared(tokens[0], tokens[1])
    sizes, shares = _shares(counts, (reference, current))
    return ColumnDrift(
        psi=psi(*shares),
        jensen_shannon=jensen_shannon(*shares),
        # (q - p) ln(q / p) is about (q - p)^2 / p near p = q, whose mean is (1 - p)(1/n + 1/m).
        chance=(np.count_nonzero(shares[0]) - 1) * float((1 / sizes).sum()),
        new_token_share=new,
        vanished_token_share=vanished,
        bins=tuple(
            Bin(label, float(then), float(now))
            for label, then, now in zip([*labels, "missing"], shares[0], shares[1], strict=True)
        ),
    )


def _shares(counts: npt.NDArray[np.int64], columns: Sequence[ColumnProfile]) -> tuple[_Floats, _Floats]:
    """Returns the sizes of both samples, and float [2, bins + 1], the shares of all bins, missing last."""
    present = np.array([column.tokens.total for column in columns], np.float64)
    missing = np.array([_missing_units(column) for column in columns], np.float64)
    sizes = np.maximum(present + missing, 1.0)
    within = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return sizes, np.column_stack([within * (present / sizes)[:, None], missing / sizes])


def _missing_units(column: ColumnProfile) -> int:
    return column.num_missing + column.num_nan + column.num_infinite


def _number_bins(reference: NumberCounts, current: NumberCounts) -> tuple[list[str], _Ints]:
    part = reference.before() * _NUMBER_BINS // max(reference.total(), 1)
    bounds = reference.values[np.flatnonzero(np.diff(part)) + 1]
    counts = np.zeros((2, len(bounds) + 1), np.int64)
    for row, side in enumerate((reference, current)):
        np.add.at(counts[row], np.searchsorted(bounds, side.values, side="right"), side.counts)
    return _range_labels(bounds), counts


def _range_labels(bounds: _Floats) -> list[str]:
    texts = [f"{bound:.10g}" for bound in bounds]
    if not texts:
        return ["any number"]
    between = [f"{low} to {high}" for low, high in itertools.pairwise(texts)]
    return [f"below {texts[0]}", *between, f"{texts[-1]} and above"]


def _token_bins(reference: TokenSketch, current: TokenSketch) -> tuple[list[str], _Ints]:
    top = reference.top(_TOKEN_BINS)
    named = np.stack([reference.counts[top], _counts_of(reference.hashes[top], current)])
    others = np.array([[reference.total], [current.total]]) - named.sum(axis=1, keepdims=True)
    labels = [shown_text(text) for text in reference.texts.take(pa.array(top)).to_pylist()]
    return [*labels, OTHERS], np.concatenate([named, others], axis=1)


def _counts_of(hashes: npt.NDArray[np.uint64], sketch: TokenSketch) -> _Ints:
    places = pc.index_in(pa.array(hashes), value_set=pa.array(sketch.hashes))
    return np.append(sketch.counts, 0)[pc.fill_null(places, len(sketch.counts)).to_numpy()]


def _unshared(tokens: TokenSketch, others: TokenSketch) -> float:
    """Returns the share of the values whose token the others have not; 0 of no values."""
    known = np.isin(tokens.hashes, others.hashes)
    return float(tokens.counts[~known].sum() / tokens.total) if tokens.total else 0.0
