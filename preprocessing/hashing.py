"""A 64-bit hash of Arrow values by their content: equal for equal values, however they are stored.

Neither chunks nor offsets nor dictionaries nor the width of a number matter, so a hash names the same partition on
every worker and in every version. The mixer is the finaliser of splitmix64 (Steele, Lea, Flood 2014). Working arrays
are pieces that stay in a core's cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.dictionaries import canonical, known_indices

__all__ = ["combine", "hash_column", "hash_tuples", "mix"]

_Hashes = npt.NDArray[np.uint64]

_NULL = np.uint64(0x6E75_6C6C_9E37_79B9)
_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_LIST = np.uint64(0xD6E8_FEB8_6659_FD93)  # odd, so that its powers have inverses modulo 2^64
_WORD = 8
_LONG = 128  # bytes from which a string is hashed one at a time by BLAKE2
_CHUNK_ROWS = 1 << 14


def mix(values: _Hashes) -> _Hashes:
    """Returns the finaliser of splitmix64 of each value, a bijection of 64 bits."""
    result = values.copy()
    _mix_in_place(result)
    return result


def _mix_in_place(values: _Hashes) -> None:
    scratch = np.empty(min(len(values), _CHUNK_ROWS), np.uint64)
    for start in range(0, len(values), _CHUNK_ROWS):
        piece = values[start : start + _CHUNK_ROWS]
        shifted = scratch[: len(piece)]
        piece += _GOLDEN
        piece ^= np.right_shift(piece, np.uint64(30), out=shifted)
        piece *= np.uint64(0xBF58_476D_1CE4_E5B9)
        piece ^= np.right_shift(piece, np.uint64(27), out=shifted)
        piece *= np.uint64(0x94D0_49BB_1331_11EB)
        piece ^= np.right_shift(piece, np.uint64(31), out=shifted)


def combine(first: _Hashes, second: _Hashes) -> _Hashes:
    """Returns a hash of the ordered pair."""
    result = first * _GOLDEN
    result ^= second
    _mix_in_place(result)
    return result


def hash_tuples(columns: Sequence[pa.Array | pa.ChunkedArray], num_rows: int) -> _Hashes:
    """Returns uint64 [num_rows], a hash of the values of each row in the order of the columns.

    A polynomial in an odd base of hashes that are mixed already, mixed once more: a quarter of the work of mixing
    after each column.
    """
    result = np.full(num_rows, len(columns), np.uint64)
    for column in columns:
        hashes = hash_column(column)
        for start in range(0, num_rows, _CHUNK_ROWS):
            piece = result[start : start + _CHUNK_ROWS]
            piece *= _GOLDEN
            piece += hashes[start : start + _CHUNK_ROWS]
    _mix_in_place(result)
    return result


def hash_column(array: pa.Array | pa.ChunkedArray) -> _Hashes:
    """Returns uint64 [rows], equal for equal values; a null has a value of its own.

    Numbers are equal by value within integers (booleans, timestamps in one unit) and within floats (-0.0 equals 0.0,
    any NaN another NaN); text equals the same bytes; lists are equal by their elements.
    """
    if isinstance(array, pa.ChunkedArray):
        parts = [hash_column(chunk) for chunk in array.chunks]
        return np.concatenate([np.zeros(0, np.uint64), *parts])
    if pa.types.is_dictionary(array.type):
        return _hash_dictionary(array)
    hashes = _hash_values(array)
    if array.null_count:
        np.putmask(hashes, array.is_null().to_numpy(zero_copy_only=False), _NULL)
    return hashes


def _hash_dictionary(array: pa.DictionaryArray) -> _Hashes:
    if len(array.dictionary) > 2 * len(array):  # a slice that carries the dictionary of the whole
        array = canonical(array)
    distinct = np.append(hash_column(array.dictionary), _NULL)
    return distinct[known_indices(array)]


def _hash_values(array: pa.Array) -> _Hashes:
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), _NULL)
    if pa.types.is_floating(kind):
        return _hash_floats(array)
    if pa.types.is_uint64(kind):
        return mix(_numbers(array))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        wide = pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()
        return mix(_numbers(array.cast(wide).cast(pa.int64())).view(np.uint64))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _hash_lists(array)
    return _hash_bytes(array.cast(pa.large_binary()))


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    """Returns an array of 8-byte numbers without a copy, whatever lies under its nulls."""
    return pa.Array.from_buffers(array.type, len(array), [None, array.buffers()[1]], offset=array.offset).to_numpy()


def _hash_floats(array: pa.Array) -> _Hashes:
    numbers = _numbers(array.cast(pa.float64())) + 0.0  # -0.0 + 0.0 is 0.0
    np.putmask(numbers, np.isnan(numbers), np.nan)
    hashes: _Hashes = numbers.view(np.uint64)
    _mix_in_place(hashes)
    return hashes


def _hash_bytes(array: pa.LargeBinaryArray) -> _Hashes:
    """Hashes strings eight bytes at a time: turn j takes the j-th word of every string that is so long."""
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    if not len(array) or offsets[0] == offsets[-1]:
        return mix(np.zeros(len(array), np.uint64))
    content = np.frombuffer(array.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    padded = np.concatenate([content, np.zeros(_WORD, np.uint8)])
    starts = offsets[:-1] - offsets[0]
    lengths = np.diff(offsets)
    hashes = np.empty(len(array), np.uint64)
    for begin in range(0, len(array), _CHUNK_ROWS):
        rows = slice(begin, begin + _CHUNK_ROWS)
        hashes[rows] = _hash_short(padded, starts[rows], lengths[rows])
    for row in np.flatnonzero(lengths > _LONG):
        piece = content[starts[row] : starts[row] + lengths[row]]
        hashes[row] = np.frombuffer(hashlib.blake2b(piece.tobytes(), digest_size=_WORD).digest(), "<u8")[0]
    return hashes


def _hash_short(
    padded: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> _Hashes:
    """Hashes the strings of at most `_LONG` bytes; those that are longer get a value to be replaced."""
    words = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded, strides=(1,))  # a word at every byte
    hashes = mix(lengths.view(np.uint64))
    rows = np.flatnonzero((lengths > 0) & (lengths <= _LONG))
    at, left = starts[rows], lengths[rows]
    while len(rows):
        shift = (np.maximum(_WORD - left, 0) * 8).astype(np.uint64)
        word = words[at] << shift  # bytes past the end of the string are shifted out
        hashes[rows] = combine(hashes[rows], word)
        on = left > _WORD
        rows, at, left = rows[on], at[on] + _WORD, left[on] - _WORD
    return hashes


def _hash_lists(array: pa.Array) -> _Hashes:
    """Hashes a list as the polynomial of its elements' hashes, by prefix sums and inverse powers of the base."""
    sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
    elements = hash_column(array.flatten())  # skips what lies under nulls
    ends = np.cumsum(sizes)
    powers, inverses = _powers(_LIST, len(elements) + 1), _powers(_inverse(_LIST), len(elements) + 1)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(elements * powers[:-1])])
    polynomial = (sums[ends] - sums[ends - sizes]) * inverses[ends - sizes]
    return combine(polynomial, sizes.view(np.uint64))


def _powers(base: np.uint64, count: int) -> _Hashes:
    result = np.full(count, base)
    result[0] = 1
    return np.cumprod(result)


def _inverse(odd: np.uint64) -> np.uint64:
    """Returns the inverse modulo 2^64."""
    return np.uint64(pow(int(odd), -1, 1 << 64))
