"""What a person is shown of one column: shares, quantiles, the most frequent values, and the bars of a small plot."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools

import numpy as np
import pyarrow as pa

from preprocessing.histogram import Histogram
from preprocessing.number_counts import NumberCounts, number_counts
from preprocessing.profile import ColumnProfile
from preprocessing.schema import LABEL_PREFIX, WEIGHT_COLUMN
from preprocessing.shown_text import shown_text

__all__ = ["Bar", "ColumnFigures", "TopValue", "column_figures", "shown_name", "shown_number"]

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_TOP = 5
_BARS = 24
_SKEWED = 20  # times its median: then a logarithm shows more


@dataclasses.dataclass(frozen=True)
class TopValue:
    """A frequent value, how often it occurs, and its share of all values."""

    text: str
    count: int
    share: float


@dataclasses.dataclass(frozen=True)
class Bar:
    """A bar of the plot of a column: what it stands for and its share of the values."""

    label: str
    share: float


@dataclasses.dataclass(frozen=True)
class ColumnFigures:
    """What is shown of a column.

    Attributes:
        name: as in the rows.
        title: as shown.
        kind: of values.
        num_rows: rows seen.
        missing_share: of rows without a value.
        num_nan: NaN among the values.
        num_infinite: infinities among the values.
        distinct: number of distinct values.
        is_exact: whether `distinct` is counted, or else estimated.
        smallest: as text; None of text.
        largest: as text; None of text.
        quantiles: as text, by share; empty of text.
        lengths: of lists: least, median, 95 % and largest; empty of others.
        top: most frequent values.
        bars: the distribution: of numbers by value, of text by falling count.
    """

    name: str
    title: str
    kind: str
    num_rows: int
    missing_share: float
    num_nan: int
    num_infinite: int
    distinct: int
    is_exact: bool
    smallest: str | None
    largest: str | None
    quantiles: dict[str, str]
    lengths: dict[str, int]
    top: tuple[TopValue, ...]
    bars: tuple[Bar, ...]


def column_figures(name: str, column: ColumnProfile, *, is_clock: bool = False) -> ColumnFigures:
    """Returns the figures of a column; numbers of a clock (ms since 1970 UTC) are shown as times."""
    show = _shown_time if is_clock else shown_number
    values = None if column.values is None or is_clock or not column.values.total() else number_counts(column)[0]
    return ColumnFigures(
        name=name,
        title=shown_name(name),
        kind="time" if is_clock else column.kind,
        num_rows=column.num_rows,
        missing_share=column.missing_share(),
        num_nan=column.num_nan,
        num_infinite=column.num_infinite,
        distinct=column.tokens.distinct(),
        is_exact=column.tokens.is_exact,
        smallest=None if column.smallest is None else show(column.smallest),
        largest=None if column.largest is None else show(column.largest),
        quantiles={} if values is None else _quantiles(values),
        lengths={} if column.lengths is None else _lengths(column.lengths),
        top=() if is_clock else _top(column),
        bars=_bars(column, values) if not is_clock else (),
    )


def shown_name(column: str) -> str:
    """Returns the name of a column of the rows as a person calls it."""
    if column == WEIGHT_COLUMN:
        return "sample weight"
    return f"label {column.removeprefix(LABEL_PREFIX)}" if column.startswith(LABEL_PREFIX) else column


def shown_number(value: float) -> str:
    """Returns a number in at most six digits, integers below 10^12 in full."""
    if value == int(value) and abs(value) < 1e12:
        return f"{int(value):,}"
    return f"{value:.6g}"


def _shown_time(value_ms: float) -> str:
    try:
        return dt.datetime.fromtimestamp(value_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return shown_number(value_ms)


def _quantiles(values: NumberCounts) -> dict[str, str]:
    found = values.quantiles(QUANTILES)
    return {f"{share:.0%}": shown_number(float(value)) for share, value in zip(QUANTILES, found, strict=True)}


def _lengths(lengths: Histogram) -> dict[str, int]:
    if not lengths.total():
        return {}
    found = lengths.quantiles([0.0, 0.5, 0.95, 1.0])
    return {name: int(value) for name, value in zip(("least", "median", "95%", "largest"), found, strict=True)}


def _top(column: ColumnProfile) -> tuple[TopValue, ...]:
    tokens = column.tokens
    if column.values is not None and not tokens.is_exact:  # the histogram has seen all, the sample has not
        places = np.argsort(-column.values.counts, kind="stable")[:_TOP]
        found = zip(column.values.edges()[places], column.values.counts[places], strict=True)
        return tuple(TopValue(shown_number(float(edge)), int(count), count / tokens.total) for edge, count in found)
    return tuple(TopValue(text, count, count / tokens.total) for text, count in _top_tokens(column, _TOP))


def _top_tokens(column: ColumnProfile, size: int) -> list[tuple[str, int]]:
    tokens = column.tokens
    places = tokens.top(size)
    texts = tokens.texts.take(pa.array(places)).to_pylist()
    return [(shown_text(text), count) for text, count in zip(texts, tokens.counts[places].tolist(), strict=True)]


def _bars(column: ColumnProfile, values: NumberCounts | None) -> tuple[Bar, ...]:
    if values is not None:
        return _number_bars(values)
    return tuple(Bar(text, count / column.tokens.total) for text, count in _top_tokens(column, _BARS))


def _number_bars(numbers: NumberCounts) -> tuple[Bar, ...]:
    """Returns a bar for each of few values, or else for ranges of equal width of the value, or its logarithm."""
    values, shares = numbers.values, numbers.counts / numbers.total()
    if len(values) <= _BARS:
        return tuple(Bar(shown_number(float(one)), float(share)) for one, share in zip(values, shares, strict=True))
    low, middle, high = numbers.quantiles([0.005, 0.5, 0.995])
    if low >= 0 and high > _SKEWED * middle:
        bounds = np.expm1(np.linspace(np.log1p(low), np.log1p(high), _BARS + 1))
    else:
        bounds = np.linspace(low, high, _BARS + 1)
    places = np.clip(np.searchsorted(bounds, values, side="right") - 1, 0, _BARS - 1)
    heights = np.bincount(places, shares, minlength=_BARS)
    ends = [shown_number(float(bound)) for bound in bounds]
    labels = [f"{start} to {end}" for start, end in itertools.pairwise(ends)]
    return tuple(Bar(label, float(height)) for label, height in zip(labels, heights, strict=True))
