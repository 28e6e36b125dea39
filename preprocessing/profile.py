"""What joined rows look like, column by column, as states that merge: the data report is made of these.

`profile` turns one table into a `Profile`, `merge_profiles` adds profiles up (their order does not matter),
`preprocessing.profile_state` carries them as Parquet. A column takes bounded memory however many rows there are: up
to 65,536 tokens of text (4,096 of a number) with exact counts, beyond that a sample (`token_sketch`), and histograms
of some thousand bins.

A value is missing where the model would see none: null, the marker of a missing value, NaN, an infinity, a list
without elements.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.errors import ArtefactError, DataError
from preprocessing.histogram import Histogram, merge_histograms
from preprocessing.raw_values import column_of, is_list, raw_dtype
from preprocessing.schema import LABEL_PREFIX, MISSING_INT64
from preprocessing.token_counts import count_tokens
from preprocessing.token_sketch import (
    NUMBER_CAPACITY,
    TEXT_CAPACITY,
    TokenSketch,
    merge_sketches,
    sketch_numbers,
    sketch_tokens,
)

__all__ = ["ColumnProfile", "Kind", "Profile", "label_counts", "label_rate", "merge_all", "merge_profiles", "profile"]

_HELD = 8
Kind = Literal["text", "number", "list of text", "list of numbers"]


@dataclasses.dataclass(frozen=True)
class ColumnProfile:
    """What is known of one column; of a list column, tokens and values are those of its elements.

    Attributes:
        kind: of values.
        num_rows: rows seen.
        num_missing: rows of null or the missing marker; of lists, those without elements.
        num_nan: values that are NaN.
        num_infinite: values that are infinite.
        tokens: distinct values and their counts.
        values: of numbers, their histogram.
        lengths: of lists, the histogram of their lengths.
        smallest: of finite numbers, exact up to 2^53.
        largest: of finite numbers.
    """

    kind: Kind
    num_rows: int
    num_missing: int
    num_nan: int
    num_infinite: int
    tokens: TokenSketch
    values: Histogram | None = None
    lengths: Histogram | None = None
    smallest: float | None = None
    largest: float | None = None

    def missing_share(self) -> float:
        """Returns the share of rows without a value; 0 of no rows."""
        unusable = 0 if self.lengths is not None else self.num_nan + self.num_infinite
        return (self.num_missing + unusable) / self.num_rows if self.num_rows else 0.0


@dataclasses.dataclass(frozen=True)
class Profile:
    """The profile of each column of the rows, labels and weight among them, by name."""

    num_rows: int
    labels: tuple[str, ...]
    columns: dict[str, ColumnProfile]


def label_counts(profile: Profile, label: str) -> tuple[int, int]:
    """Returns the number of rows whose label is 1, and of all with that label."""
    histogram = profile.columns[LABEL_PREFIX + label].values
    if histogram is None:
        return 0, 0
    return int(histogram.counts[histogram.edges() == 1.0].sum()), histogram.total()


def label_rate(profile: Profile, label: str) -> float | None:
    """Returns the share of rows whose label is 1; None of no rows."""
    positives, total = label_counts(profile, label)
    return positives / total if total else None


def profile(table: pa.Table, labels: Sequence[str]) -> Profile:
    """Returns the profile of joined rows.

    Args:
        table: raw columns, the label columns and the weight.
        labels: names of the labels, without their prefix.

    Raises:
        DataError: a label has no column, or a column is of a type that rows cannot have.
    """
    for label in labels:
        column_of(table, LABEL_PREFIX + label)
    columns = {name: _profile_column(column_of(table, name), name) for name in table.column_names}
    return Profile(num_rows=table.num_rows, labels=tuple(labels), columns=columns)


def _profile_column(column: pa.Array, name: str) -> ColumnProfile:
    if not is_list(column.type):
        return _profile_values(column, name)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.float64)
    elements = _profile_values(column.flatten(), name)
    return dataclasses.replace(
        elements,
        kind="list of text" if elements.kind == "text" else "list of numbers",
        num_rows=len(column),
        num_missing=int(np.count_nonzero(lengths == 0)),
        lengths=Histogram.of(lengths),
    )


def _profile_values(values: pa.Array, name: str) -> ColumnProfile:
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _profile_numbers(values.cast(kind))
    if pa.types.is_null(kind) or pa.types.is_boolean(kind):
        return _profile_text(values.cast(pa.string()))
    if raw_dtype(kind) == "string":
        return _profile_text(values)
    raise DataError(f"column {name!r} is of type {kind}, which cannot be profiled; declare it as text or a number")


def _profile_text(values: pa.Array) -> ColumnProfile:
    tokens = count_tokens(values)
    return ColumnProfile(
        kind="text",
        num_rows=len(values),
        num_missing=len(values) - tokens.total(),
        num_nan=0,
        num_infinite=0,
        tokens=sketch_tokens(tokens.tokens, tokens.counts, capacity=TEXT_CAPACITY),
    )


def _profile_numbers(values: pa.Array) -> ColumnProfile:
    known = values.drop_null()
    if pa.types.is_int64(known.type):
        known = known.filter(pc.not_equal(known, MISSING_INT64))
    if pa.types.is_floating(known.type):
        known = pc.add(known, pa.scalar(0.0, known.type))  # -0.0 is 0.0, whichever comes first
    numbers = known.cast(pa.float64(), safe=False).to_numpy()
    finite: npt.NDArray[np.bool_] = np.isfinite(numbers)
    nan = int(np.count_nonzero(np.isnan(numbers)))
    usable = numbers[finite]
    return ColumnProfile(
        kind="number",
        num_rows=len(values),
        num_missing=len(values) - len(known),
        num_nan=nan,
        num_infinite=len(numbers) - len(usable) - nan,
        tokens=sketch_numbers(known if finite.all() else known.filter(pa.array(finite)), capacity=NUMBER_CAPACITY),
        values=Histogram.of(usable),
        smallest=float(usable.min()) if len(usable) else None,
        largest=float(usable.max()) if len(usable) else None,
    )


def merge_profiles(parts: Sequence[Profile]) -> Profile:
    """Returns the profile of all rows together; the order of parts does not matter.

    Raises:
        ArtefactError: there is no part, or two are of rows with other columns.
    """
    if not parts:
        raise ArtefactError("there is no profile to merge; run preprocess again")
    first = parts[0]
    kinds = {name: column.kind for name, column in first.columns.items()}
    for part in parts[1:]:
        if part.labels != first.labels or {name: column.kind for name, column in part.columns.items()} != kinds:
            raise ArtefactError("profiles of rows with other columns or labels do not merge; run preprocess again")
    if len(parts) == 1:
        return first
    return Profile(
        num_rows=sum(part.num_rows for part in parts),
        labels=first.labels,
        columns={name: _merge_columns([part.columns[name] for part in parts]) for name in first.columns},
    )


def merge_all(profiles: Iterable[Profile]) -> Profile:
    """Returns the profile of all rows together, holding a few profiles at a time.

    Raises:
        ArtefactError: there is none, or two are of rows with other columns.
    """
    held: list[Profile] = []
    for one in profiles:
        held.append(one)
        if len(held) == _HELD:
            held = [merge_profiles(held)]
    return merge_profiles(held)


def _merge_columns(parts: Sequence[ColumnProfile]) -> ColumnProfile:
    first = parts[0]
    smallest = [part.smallest for part in parts if part.smallest is not None]
    largest = [part.largest for part in parts if part.largest is not None]
    capacity = TEXT_CAPACITY if first.values is None else NUMBER_CAPACITY
    return ColumnProfile(
        kind=first.kind,
        num_rows=sum(part.num_rows for part in parts),
        num_missing=sum(part.num_missing for part in parts),
        num_nan=sum(part.num_nan for part in parts),
        num_infinite=sum(part.num_infinite for part in parts),
        tokens=merge_sketches([part.tokens for part in parts], capacity=capacity),
        values=_merge_present([part.values for part in parts]),
        lengths=_merge_present([part.lengths for part in parts]),
        smallest=min(smallest, default=None),
        largest=max(largest, default=None),
    )


def _merge_present(parts: Sequence[Histogram | None]) -> Histogram | None:
    present = [part for part in parts if part is not None]
    return merge_histograms(present) if present else None
