"""What a column of a log probably is, told from a sample of its values: type, unit, delimiter, missing markers.

A guess is a proposal for a config that a person reads; it is never applied to data unseen. `N` rows of the sample.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.source_spec import ColumnType
from preprocessing.timestamps import ms_from

__all__ = ["ColumnGuess", "guess_column", "missing_words"]

Unit = Literal["s", "ms", "us", "iso"]

# So many of the values must be of a type for the column to be declared so; the rest is dirt.
_ENOUGH = 0.98
_WORDS = ("NULL", "null", "\\N", "NaN", "nan", "None", "none", "N/A", "NA", "n/a", "-", "?")
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_WHOLE = r"^[+-]?\d{1,18}$"
_ISO = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?\s?(Z|[+-]\d{2}:?\d{2})?$"
_DATE = r"^\d{4}-\d{2}-\d{2}$"
# Numbers between these, in seconds since 1970, are taken for times: 1995 to 2100.
_TIMES_S = (788_918_400, 4_102_444_800)
_PER_S: dict[Unit, int] = {"s": 1, "ms": 1_000, "us": 1_000_000}
_LARGE_MARKS = (2147483647.0, -2147483648.0)


@dataclasses.dataclass(frozen=True)
class ColumnGuess:
    """A column as it seems.

    Attributes:
        type: as a config declares it.
        unit: of a timestamp.
        delimiter: of a list in text.
        missing: values that seem to stand for a missing one.
        missing_share: of the rows, empty ones and markers.
        distinct: number of distinct values in the sample (of a list: of its elements).
        rows: of the sample.
        values: string [N], null where missing (of a list: a list type).
        numbers: float64 [N], NaN where there is none; None if most values are no numbers.
        times_ms: float64 [N] since 1970 UTC, NaN where there is none; None if most values are no times.
        whole: whether all numbers are whole.
        invalid_share: of the values that are there, those that are not of the type.
        date_only: whether the times are days without an hour.
    """

    type: ColumnType
    values: pa.Array
    rows: int
    distinct: int
    missing_share: float
    missing: tuple[str, ...] = ()
    unit: Unit | None = None
    delimiter: str | None = None
    numbers: npt.NDArray[np.float64] | None = None
    times_ms: npt.NDArray[np.float64] | None = None
    whole: bool = False
    invalid_share: float = 0.0
    date_only: bool = False

    @property
    def is_list(self) -> bool:
        """Whether it holds lists."""
        return self.type.startswith("list<")

    @property
    def is_binary(self) -> bool:
        """Whether both 0 and 1 occur, and nothing else."""
        if self.type == "bool":
            return self.distinct == 2
        numbers = self.numbers
        return numbers is not None and set(np.unique(numbers[~np.isnan(numbers)])) == {0.0, 1.0}

    @property
    def is_unique(self) -> bool:
        """Whether (nearly) every row has a value of its own; a repeated row or two is dirt."""
        return not self.is_list and self.missing_share <= 0.02 and self.distinct >= _ENOUGH * self.rows


def missing_words(text: pa.Array) -> tuple[str, ...]:
    """Returns the usual words for 'missing' that occur in a text column, and notes such as (no genres listed)."""
    found = [word for word in _WORDS if pc.any(pc.equal(text, word)).as_py()]
    notes = text.filter(pc.fill_null(pc.match_substring_regex(text, r"^\((no|none|not) [^()]*\)$"), False))
    return (*found, *sorted(set(notes.to_pylist())))


def guess_column(values: pa.Array) -> ColumnGuess:
    """Returns what a column seems to be.

    Args:
        values: string or a list of strings [N]; empty text counts as missing.
    """
    if pa.types.is_list(values.type):
        return _list_guess(values, delimiter=None, missing=())
    empty = pc.fill_null(pc.equal(values, ""), False)
    words = missing_words(values)
    marked = pc.is_in(values, value_set=pa.array(words, pa.string())) if words else empty
    text = pc.if_else(pc.or_(empty, marked), pa.scalar(None, pa.string()), values)
    known = text.drop_null()
    if not len(known):
        return ColumnGuess("string", text, len(text), 0, 1.0 if len(text) else 0.0, words)
    share = _share(known, _NUMBER)
    if share >= _ENOUGH:
        return _number_guess(text, words, invalid=1.0 - share)
    return _iso_guess(text, known, words) or _text_guess(text, known, words)


def _text_guess(text: pa.Array, known: pa.Array, words: tuple[str, ...]) -> ColumnGuess:
    if set(pc.unique(pc.utf8_lower(known)).to_pylist()) <= {"true", "false", "yes", "no"}:
        return _plain("bool", text, words)
    delimiter = _delimiter(known)
    if delimiter is not None:
        return _list_guess(pc.split_pattern(text, delimiter), delimiter=delimiter, missing=words)
    return _plain("string", text, words)


def _plain(kind: ColumnType, text: pa.Array, words: tuple[str, ...]) -> ColumnGuess:
    return ColumnGuess(kind, text, len(text), _distinct(text), _missing_share(text), words)


def _share(known: pa.Array, pattern: str) -> float:
    return float(pc.mean(pc.match_substring_regex(known, pattern).cast(pa.int8())).as_py())


def _distinct(values: pa.Array) -> int:
    return int(pc.count_distinct(values, mode="only_valid").as_py())


def _missing_share(values: pa.Array) -> float:
    return values.null_count / len(values) if len(values) else 0.0


def _iso_guess(text: pa.Array, known: pa.Array, words: tuple[str, ...]) -> ColumnGuess | None:
    if _share(known, _ISO) < _ENOUGH:
        return None
    ms, invalid = ms_from(text.cast(pa.binary()), "iso")
    share = float(invalid.sum() / len(known))
    if share > 1.0 - _ENOUGH:
        return None
    times = pc.fill_null(ms.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False).copy()
    times[invalid] = np.nan
    return dataclasses.replace(
        _plain("timestamp", text, words),
        unit="iso",
        times_ms=times,
        invalid_share=share,
        date_only=_share(known, _DATE) >= _ENOUGH,
    )


def _number_guess(text: pa.Array, words: tuple[str, ...], *, invalid: float) -> ColumnGuess:
    numeric = pc.fill_null(pc.match_substring_regex(text, _NUMBER), False)
    trimmed = pc.utf8_trim_whitespace(text)
    numbers = _floats(pc.if_else(numeric, trimmed, pa.scalar(None, pa.string())))
    marks = _marks(numbers)
    numbers[np.isin(numbers, marks)] = np.nan
    known = numbers[~np.isnan(numbers)]
    shown = tuple(f"{mark:g}" if mark != int(mark) else str(int(mark)) for mark in marks)
    text = pc.if_else(pa.array(~np.isnan(numbers)), text, pa.scalar(None, pa.string()))
    plain = _plain("float64", text, (*words, *shown))
    unit = _unit(known)
    if unit is not None:
        return dataclasses.replace(
            plain, type="timestamp", unit=unit, times_ms=numbers * (1000 / _PER_S[unit]), invalid_share=invalid
        )
    all_digits = bool(len(known)) and _share(text.drop_null(), _WHOLE) == 1.0
    return dataclasses.replace(
        plain,
        type="int64" if all_digits else "float64",
        numbers=numbers,
        whole=bool(np.all(known == np.floor(known))),
        invalid_share=invalid,
    )


def _floats(text: pa.Array) -> npt.NDArray[np.float64]:
    digits = pc.replace_substring_regex(text, r"^\+", "")
    return pc.fill_null(digits.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False).copy()


def _marks(numbers: npt.NDArray[np.float64]) -> list[float]:
    """Returns numbers that stand out: the only negative one of several rows, the ends of 32 bits."""
    known = numbers[~np.isnan(numbers)]
    marks = [mark for mark in _LARGE_MARKS if np.any(known == mark)]
    rest = known[~np.isin(known, marks)]
    negative = np.unique(rest[rest < 0])
    alone = len(negative) == 1 and negative[0] == np.floor(negative[0])
    if alone and np.count_nonzero(rest == negative[0]) > 1 and np.any(rest > 0):
        marks.append(float(negative[0]))
    return marks


def _unit(known: npt.NDArray[np.float64]) -> Unit | None:
    """Returns the unit in which (nearly) all numbers are times of our age, or None."""
    if not len(known):
        return None
    for unit, per_s in _PER_S.items():
        if np.mean((known >= _TIMES_S[0] * per_s) & (known < _TIMES_S[1] * per_s)) >= _ENOUGH and len(known) > 1:
            return unit
    return None


def _delimiter(known: pa.Array) -> str | None:
    """Returns what splits the text into values that recur, or None where it is one value."""
    for delimiter, element in (("|", r"[^|]+"), (",", r"[\w.-]+"), (";", r"[^;]+"), (" ", r"\d+")):
        split = f"[{delimiter}]" if delimiter != " " else " "
        if _share(known, f"^{element}({split}{element})*$") < _ENOUGH:
            continue
        parts = pc.split_pattern(known, delimiter)
        several = np.mean(pc.list_value_length(parts).to_numpy() > 1)
        flat = parts.flatten()
        if several >= 0.01 and _distinct(flat) <= 0.8 * len(flat):
            return delimiter
    return None


def _list_guess(lists: pa.Array, *, delimiter: str | None, missing: tuple[str, ...]) -> ColumnGuess:
    flat = lists.flatten()
    empty = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False) == 0
    share = float(np.mean(empty)) if len(lists) else 0.0
    return ColumnGuess("list<string>", lists, len(lists), _distinct(flat), share, missing, delimiter=delimiter)
