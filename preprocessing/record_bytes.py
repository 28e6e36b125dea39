"""Values to TFRecords of one layout: columns of 32-bit words, each operation over all rows at once.

Word k of all records lies together in memory, so filling in a value and passing a word through the checksum are
operations on contiguous arrays; one transposition at the end makes rows of it. `N` rows, `W` words, `F` values of a
key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from preprocessing.crc32c import crc32c_columns, mask_crc
from preprocessing.errors import DataError
from preprocessing.record_layout import RecordLayout

__all__ = ["encode_rows", "record_size"]

Words: TypeAlias = npt.NDArray[np.uint32]

# A TFRecord is: length uint64, masked CRC of the length, content, masked CRC of the content.
_HEAD, _TAIL = 12, 4
_WORD = 4
_GROUP_BITS = 7
_PIECE_BITS = _GROUP_BITS * _WORD  # of a number, in one word of its varint


def record_size(layout: RecordLayout) -> int:
    """Returns the bytes of one record."""
    return _HEAD + len(layout.template) + _TAIL


def encode_rows(
    layout: RecordLayout, floats: Mapping[str, npt.NDArray[np.float32]], ints: Mapping[str, npt.NDArray[Any]]
) -> npt.NDArray[np.uint8]:
    """Returns uint8 [N, record size]: the records of rows.

    Args:
        layout: its keys are those of `floats` and `ints`, but for keys with F = 0.
        floats: float32 [N, F].
        ints: int64 [N, F]. Arrays whose columns lie together in memory are read fastest.

    Raises:
        DataError: if an integer is negative, or larger than its place in the layout holds.
    """
    num_rows = len(next(iter((*floats.values(), *ints.values()))))
    size = len(layout.template)
    front = -(_HEAD + size) % _WORD  # so that the message ends with a word
    place = front + _HEAD
    words = np.empty(((place + size + _TAIL) // _WORD, num_rows), np.uint32)
    words[:] = np.frombuffer(bytes(place) + layout.template + bytes(_TAIL), "<u4")[:, None]
    for key, starts in layout.floats.items():
        values = floats[key]
        for column, start in enumerate(starts):
            _put(words, place + start, np.ascontiguousarray(values[:, column], np.float32).view(np.uint32))
    for key, slots in layout.ints.items():
        for column, (start, width) in enumerate(slots):
            _put_varint(words, place + start, _checked(ints[key][:, column], width, key, column), width)
    words[-1] = mask_crc(crc32c_columns(words[place // _WORD : -1], size))
    words[: -(-place // _WORD)] |= np.frombuffer(_head(size, front), "<u4")[:, None]
    records = np.ascontiguousarray(words.T).view(np.uint8)
    return np.ascontiguousarray(records[:, front:])


def _head(size: int, front: int) -> bytes:
    """Returns length and its checksum behind `front` zero bytes, filled up to whole words."""
    length = np.array([size], "<u8")
    crc = mask_crc(crc32c_columns(length.view(np.uint32)[:, None], length.nbytes)).astype("<u4")
    head = bytes(front) + length.tobytes() + crc.tobytes()
    return head + bytes(-len(head) % _WORD)


def _put(words: Words, place: int, values: Words, size: int = _WORD) -> None:
    """Adds values of `size` bytes to the zero bytes from `place` on."""
    word, byte = divmod(place, _WORD)
    words[word] |= values << np.uint32(8 * byte)
    if byte + size > _WORD:
        words[word + 1] |= values >> np.uint32(8 * (_WORD - byte))


def _put_varint(words: Words, place: int, values: npt.NDArray[Any], width: int) -> None:
    """Adds numbers, in groups of seven bits, to the empty varints from `place` on."""
    while True:
        piece = (values & values.dtype.type((1 << _PIECE_BITS) - 1)).astype(np.uint32, copy=False)
        _put(words, place, _spread(piece, min(width, _WORD)), min(width, _WORD))
        if width <= _WORD:
            return
        values, place, width = values >> values.dtype.type(_PIECE_BITS), place + _WORD, width - _WORD


def _spread(piece: Words, width: int) -> Words:
    """Returns numbers of 28 bits with a zero bit above each group of seven."""
    spread = piece & np.uint32(0x7F)
    for group in range(1, width):
        spread |= (piece & np.uint32(0x7F << _GROUP_BITS * group)) << np.uint32(group)
    return spread


def _checked(values: npt.NDArray[Any], width: int, key: str, column: int) -> npt.NDArray[Any]:
    """Returns ids as the narrowest unsigned numbers that `_put_varint` takes."""
    unsigned = np.ascontiguousarray(values, np.int64).view(np.uint64)  # a negative id is a very large one
    largest = int(unsigned.max(initial=0))
    if largest >> min(_GROUP_BITS * width, 63):
        wrong = values[int(unsigned.argmax())]
        raise DataError(
            f"{key!r}, column {column}: id {wrong} does not fit the {width} bytes that its table's ids take; "
            "the rows were encoded by another transform, run preprocess again"
        )
    return unsigned.astype(np.uint32) if width <= _WORD else unsigned
