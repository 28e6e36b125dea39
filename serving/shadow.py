"""Shadow replay: the rows of a request log scored by two versions, and how their scores differ.

`N` rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from preprocessing.errors import ServingError
from serving.request_log_rows import SCORE, raw_columns

__all__ = ["Difference", "Replayed", "Scorer", "WorstRow", "compare", "logged", "rank_correlation", "replay"]

Row = Mapping[str, Any]
Scores = dict[str, NDArray[np.float64]]
# From a part of a log to a score of each row, by output.
Scorer = Callable[[pa.Table], Scores]
_SHARES = (0.5, 0.9, 0.99)


@dataclasses.dataclass(frozen=True)
class WorstRow:
    """A row on which two versions differ most: its place in the replay, both scores, and what was sent."""

    place: int
    base: float
    other: float
    row: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Difference:
    """How the scores of one output differ.

    Attributes:
        num_rows: rows that both scored with a finite number.
        undefined: rows that only one did.
        largest: the largest absolute difference.
        quantiles: of the absolute difference, by share.
        above: share of rows that differ by more than the tolerance.
        mean: of other - base: whether scores rise or fall.
        correlation: of ranks (Spearman); None if one side gives one score to all rows.
        worst: the rows that differ most, first.
    """

    num_rows: int
    undefined: int
    largest: float
    quantiles: dict[str, float]
    above: float
    mean: float
    correlation: float | None
    worst: tuple[WorstRow, ...]


@dataclasses.dataclass(frozen=True)
class Replayed:
    """The scores of both sides, by output, and the rows."""

    base: Scores
    other: Scores
    rows: pa.Table


def replay(
    tables: Iterable[pa.Table],
    base: Scorer,
    other: Scorer,
    *,
    batch_rows: int,
    observe: Callable[[int], None] = lambda rows: None,
) -> Replayed:
    """Returns what both sides say of the rows of a log.

    Args:
        tables: the log.
        base: one side.
        other: what is held against it.
        batch_rows: rows a request.
        observe: told the number of rows scored so far.

    Raises:
        ServingError: if the log is empty, or a side cannot score its rows.
    """
    parts, found = [], []
    done = 0
    for table in tables:
        for start in range(0, table.num_rows, batch_rows):
            rows = table.slice(start, batch_rows)
            found.append((base(rows), other(rows)))
            parts.append(rows)
            done += rows.num_rows
            observe(done)
    if not found:
        raise ServingError("the log has no row to replay")
    whole = pa.concat_tables(parts, promote_options="default")
    return Replayed(_joined([one for one, _ in found]), _joined([one for _, one in found]), whole)


def _joined(parts: Sequence[Scores]) -> Scores:
    names = set.intersection(*({*part} for part in parts))
    return {name: np.concatenate([part[name] for part in parts]) for name in sorted(names)}


def logged(table: pa.Table) -> Scores:
    """Returns the scores that the log itself has: those of the versions that answered."""
    return {
        name.removeprefix(SCORE): table[name].to_numpy().astype(np.float64)
        for name in table.column_names
        if name.startswith(SCORE) and pa.types.is_floating(table.schema.field(name).type)
    }


def compare(replayed: Replayed, *, tolerance: float, num_worst: int = 5) -> dict[str, Difference]:
    """Returns how the scores of each output that both sides have differ.

    Raises:
        ServingError: if they share no output.
    """
    names = sorted(replayed.base.keys() & replayed.other.keys())
    if not names:
        raise ServingError(
            f"the two sides share no output: {', '.join(replayed.base) or 'none'} and "
            f"{', '.join(replayed.other) or 'none'}"
        )
    return {name: _difference(replayed, name, tolerance=tolerance, num_worst=num_worst) for name in names}


def _difference(replayed: Replayed, name: str, *, tolerance: float, num_worst: int) -> Difference:
    base, other = replayed.base[name], replayed.other[name]
    is_base, is_other = np.isfinite(base), np.isfinite(other)
    places = np.flatnonzero(is_base & is_other)
    apart = np.abs(other[places] - base[places])
    columns = raw_columns(replayed.rows.schema)
    worst = places[np.argsort(-apart, kind="stable")[:num_worst]]
    rows = replayed.rows.select(columns).take(worst).to_pylist()
    return Difference(
        num_rows=len(places),
        undefined=int(np.count_nonzero(is_base != is_other)),
        largest=float(apart.max(initial=0.0)),
        quantiles={f"p{share * 100:g}": float(np.quantile(apart, share)) if len(apart) else 0.0 for share in _SHARES},
        above=float(np.mean(apart > tolerance)) if len(apart) else 0.0,
        mean=float(np.mean(other[places] - base[places])) if len(apart) else 0.0,
        correlation=rank_correlation(base[places], other[places]),
        worst=tuple(
            WorstRow(int(place), float(base[place]), float(other[place]), _present(row))
            for place, row in zip(worst, rows, strict=True)
        ),
    )


def _present(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None and value != []}


def rank_correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float | None:
    """Returns Spearman's coefficient of float64 [N] and [N], equal values sharing their mean rank; None if undefined.

    The correlation of ranks: Spearman (1904), "The proof and measurement of association between two things".
    """
    a, b = (_mean_ranks(values) for values in (x, y))
    a, b = a - a.mean() if len(a) else a, b - b.mean() if len(b) else b
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum() / scale) if scale > 0 else None


def _mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]
