"""Signs that a model is judged on what it could not have known: one column that says it all, rows seen in training.

Shapes: N rows, V values of all lists together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.metrics import auc
from pipeline.scoring import read_rows
from preprocessing.dataset import Dataset
from preprocessing.dictionaries import as_one_array, decoded
from preprocessing.hashing import hash_column, hash_tuples
from preprocessing.raw_values import is_list
from preprocessing.schema import LABEL_PREFIX

__all__ = ["Leak", "repeated_rows", "telling_column"]

_BINS = 100
_PRIOR_ROWS = 20.0

Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]


@dataclasses.dataclass(frozen=True)
class Leak:
    """The figure that a rule bounds, and what it is about."""

    value: float
    note: str


def telling_column(dataset: Dataset, split: str, *, item: str | None) -> Leak:
    """Returns the highest AUC that any raw column reaches by itself on a split, and names the column.

    A column's score is the mean of the first label in training by its value: by token, by quantile of a number, missing
    being a value too; of a list the mean over its values, and whether the row's item is among them. No honest column of
    a click log says nearly all, so a value near 1 is a result of the impression in disguise.

    Args:
        dataset: its raw columns are looked at.
        split: "valid" or "test".
        item: column of the items, if there is one.
    """
    label = LABEL_PREFIX + dataset.schema.labels[0]
    train, judged = (pa.concat_tables(read_rows(dataset, name)) for name in ("train", split))
    known, labels = train[label].to_numpy().astype(np.float64), judged[label].to_numpy()
    found: dict[str, float] = {}
    for column in dataset.schema.raw_columns:
        before, after = (decoded(as_one_array(rows[column.name])) for rows in (train, judged))
        if not is_list(before.type):
            found[column.name] = auc(labels, _by_value(before, known, after))
            continue
        found[column.name] = auc(labels, _by_element(before, known, after))
        if item is not None:
            inside = _contains(before, decoded(as_one_array(train[item])))
            told = _by_value(inside, known, _contains(after, decoded(as_one_array(judged[item]))))
            found[f"{column.name} contains {item}"] = auc(labels, told)
    defined = {name: value for name, value in found.items() if np.isfinite(value)}
    if not defined:
        return Leak(float("nan"), "")
    name = max(defined, key=lambda name: defined[name])
    return Leak(defined[name], f"column {name!r} alone; is it known before the impression?")


def repeated_rows(dataset: Dataset, split: str, *, also: Sequence[str]) -> Leak:
    """Returns the share of a split's rows that are rows of the training split too, equal in all raw columns.

    Args:
        dataset: its raw columns are compared.
        split: "valid" or "test".
        also: further columns that must be equal, such as user, item and time.
    """
    names = sorted({*(column.name for column in dataset.schema.raw_columns), *also})
    train, judged = (pa.concat_tables(read_rows(dataset, part, columns=names)) for part in ("train", split))
    ours, theirs = (hash_tuples([rows[name] for name in names], rows.num_rows) for rows in (judged, train))
    repeated = np.isin(ours, theirs)
    if not repeated.any():
        return Leak(0.0, "")
    row = judged.slice(int(repeated.argmax()), 1).select(list(also) or names[:3]).to_pylist()[0]
    return Leak(float(repeated.mean()), f"{repeated.sum():,} rows, the first of them {_shown(row)}")


def _by_value(before: pa.Array, labels: Floats, after: pa.Array) -> Floats:
    """Returns [N] the mean label in training of each value of `after`."""
    if pa.types.is_floating(before.type) or pa.types.is_integer(before.type):
        numbers, others = (np.asarray(v.cast(pa.float64(), safe=False).fill_null(np.nan)) for v in (before, after))
        return _means(_bins(numbers, numbers), labels, _bins(others, numbers))
    return _means(hash_column(before), labels, hash_column(after))


def _bins(values: Floats, of: Floats) -> Hashes:
    """Returns the quantile of `of` that each value is in, as a code; NaN has one of its own."""
    finite = of[np.isfinite(of)]
    edges = np.unique(np.quantile(finite, np.linspace(0, 1, _BINS + 1)[1:-1])) if finite.size else np.zeros(0)
    codes = np.searchsorted(edges, values, side="right").astype(np.uint64)
    codes[np.isnan(values)] = _BINS + 1
    return codes


def _means(before: Hashes, labels: Floats, after: Hashes) -> Floats:
    """Returns the mean label of each code, drawn to that of all rows as if by some rows more."""
    codes, places = np.unique(before, return_inverse=True)
    prior = labels.mean()
    sums = np.bincount(places, weights=labels) + _PRIOR_ROWS * prior
    means = sums / (np.bincount(places) + _PRIOR_ROWS)
    at = np.minimum(np.searchsorted(codes, after), len(codes) - 1)
    return np.where(codes[at] == after, means[at], prior)


def _by_element(before: pa.Array, labels: Floats, after: pa.Array) -> Floats:
    """Returns [N] the mean over a list of what its values say; of an empty one that of all rows."""
    parents = pc.list_parent_indices(before).to_numpy()
    told = _means(hash_column(before.flatten()), labels[parents], hash_column(after.flatten()))
    sums = np.bincount(pc.list_parent_indices(after).to_numpy(), weights=told, minlength=len(after))
    lengths = pc.fill_null(pc.list_value_length(after), 0).to_numpy(zero_copy_only=False)
    return np.where(lengths > 0, sums / np.maximum(lengths, 1), labels.mean())


def _contains(lists: pa.Array, items: pa.Array) -> pa.Array:
    parents = pc.list_parent_indices(lists).to_numpy()
    equal = hash_column(lists.flatten()) == hash_column(items)[parents]
    return pa.array(np.bincount(parents[equal], minlength=len(lists)) > 0).cast(pa.string())


def _shown(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value!r:.40}" for name, value in row.items())
