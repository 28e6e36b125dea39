"""The bytes of many `tf.Example` messages side by side: a matrix with a column for each byte a message may have.

    Example   { features = 1: Features }
    Features  { map entry = 1: { key = 1, value = 2: Feature } }     repeated
    Feature   { float_list = 2 or int64_list = 3: { value = 1, packed } }

A part is the bytes [N, W] of one piece of every message and a mask [N, W] of those that are there; a part that is the
same in all messages has one row, and a mask of None means that all are there. `N` messages, `F` values of one key.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.string_tensor import varint

__all__ = ["Entry", "assemble", "example_parts", "float_entry", "int64_entry"]

Bytes: TypeAlias = npt.NDArray[np.uint8]
Mask: TypeAlias = npt.NDArray[np.bool_]
Sizes: TypeAlias = npt.NDArray[np.int64]
Part: TypeAlias = tuple[Bytes, Mask | None]

_FIELD_1, _FIELD_2, _FIELD_3 = b"\x0a", b"\x12", b"\x1a"  # wire type 2: a length and that many bytes


@dataclasses.dataclass(frozen=True)
class Entry:
    """One key of every message: its parts, and the size in bytes of each message's."""

    parts: list[Part]
    sizes: Sizes


def _constant(content: bytes) -> Part:
    return np.frombuffer(content, np.uint8)[None, :], None


def _varints(values: npt.NDArray[np.unsignedinteger]) -> tuple[Bytes, Mask]:
    """Returns bytes and mask [..., W] of the varints of unsigned numbers [...]."""
    largest = int(values.max(initial=0))
    width = max(1, -(-largest.bit_length() // 7))
    if largest < 2**32:
        values = values.astype(np.uint32, copy=False)
    content = np.empty((*values.shape, width), np.uint8)
    mask = np.empty(content.shape, np.bool_)
    mask[..., 0] = True
    for index in range(width - 1):
        rest = values >> values.dtype.type(7)
        more = rest != 0
        mask[..., index + 1] = more
        content[..., index] = values.astype(np.uint8) & np.uint8(0x7F) | more.view(np.uint8) << np.uint8(7)
        values = rest
    content[..., width - 1] = values.astype(np.uint8)
    return content, mask


def _led_by_size(tag: bytes, parts: list[Part], sizes: Sizes) -> tuple[list[Part], Sizes]:
    """Returns a length-delimited field: tag, varint of the size, content."""
    if np.all(sizes == sizes[0]):
        head = tag + varint(int(sizes[0]))
        return [_constant(head), *parts], sizes + len(head)
    content, mask = _varints(sizes.astype(np.uint64))
    size_part = (content, None if mask.all() else mask)
    return [_constant(tag), size_part, *parts], sizes + len(tag) + _row_sums(mask)


def _entry(key: str, list_tag: bytes, values: Part, sizes: Sizes) -> Entry:
    """Returns a map entry of packed values."""
    parts, sizes = _led_by_size(_FIELD_1, [values], sizes)
    parts, sizes = _led_by_size(list_tag, parts, sizes)
    parts, sizes = _led_by_size(_FIELD_2, parts, sizes)
    name = key.encode()
    head = _FIELD_1 + varint(len(name)) + name
    parts, sizes = _led_by_size(_FIELD_1, [_constant(head), *parts], sizes + len(head))
    return Entry(parts=parts, sizes=sizes)


def float_entry(key: str, values: npt.NDArray[np.float32]) -> Entry:
    """Returns the entry of a FloatList key; values float32 [N, F]."""
    content = np.ascontiguousarray(values, "<f4").view(np.uint8).reshape(len(values), -1)
    return _entry(key, _FIELD_2, (content, None), np.full(len(values), content.shape[1], np.int64))


def int64_entry(key: str, values: npt.NDArray[np.int64]) -> Entry:
    """Returns the entry of an Int64List key; values int64 [N, F], negative ones as 10 bytes."""
    content, mask = _varints(np.ascontiguousarray(values).view(np.uint64))
    mask = mask.reshape(len(values), -1)
    return _entry(key, _FIELD_3, (content.reshape(len(values), -1), mask), _row_sums(mask))


def _row_sums(mask: Mask) -> Sizes:
    """Returns [N] the number of bytes that are there; `count_nonzero(axis=1)` takes eight times as long."""
    num_rows, width = mask.shape
    dtype = np.uint8 if width < 256 else np.int64
    starts = np.arange(0, num_rows * width, width)
    return np.add.reduceat(mask.view(np.uint8).ravel(), starts, dtype=dtype).astype(np.int64)


def example_parts(floats: Mapping[str, npt.NDArray[np.float32]], ints: Mapping[str, npt.NDArray[np.int64]]) -> Entry:
    """Returns whole messages with these keys, each [N, F]; a key with F = 0 is left out. N is at least 1."""
    entries = [float_entry(key, values) for key, values in floats.items() if values.shape[1]]
    entries += [int64_entry(key, values) for key, values in ints.items() if values.shape[1]]
    sizes = np.sum([entry.sizes for entry in entries], axis=0)
    parts, sizes = _led_by_size(_FIELD_1, [part for entry in entries for part in entry.parts], sizes)
    return Entry(parts=parts, sizes=sizes)


def assemble(message: Entry, *, head: int, tail: int) -> Bytes:
    """Returns all messages one after another, each with `head` zero bytes before and `tail` behind it.

    What comes before the first part of varying size is copied as it is, the rest is picked by its mask: picking
    costs ten times as much a byte as copying.
    """
    num_rows = len(message.sizes)
    before = list(itertools.takewhile(lambda part: part[1] is None, message.parts))
    fixed = _side_by_side([_constant(bytes(head)), *before], num_rows)
    varying = _picked([*message.parts[len(before) :], _constant(bytes(tail))], num_rows)
    varying_sizes = message.sizes + head + tail - fixed.shape[1]
    joined = pc.binary_join_element_wise(
        _binary(fixed.ravel(), np.full(num_rows, fixed.shape[1])),
        _binary(varying, varying_sizes),
        pa.scalar(b"", pa.large_binary()),
    )
    return np.frombuffer(joined.buffers()[2], np.uint8).copy()


def _side_by_side(parts: list[Part], num_rows: int) -> Bytes:
    """Returns the bytes [N, W] of parts, whether they are there or not."""
    matrix = np.empty((num_rows, sum(content.shape[1] for content, _ in parts)), np.uint8)
    start = 0
    for content, _ in parts:
        end = start + content.shape[1]
        matrix[:, start:end] = content
        start = end
    return matrix


def _picked(parts: list[Part], num_rows: int) -> Bytes:
    """Returns the bytes that are there, row after row."""
    matrix = _side_by_side(parts, num_rows)
    present = np.ones(matrix.shape, np.bool_)
    start = 0
    for content, mask in parts:
        end = start + content.shape[1]
        if mask is not None:
            present[:, start:end] = mask
        start = end
    return np.compress(present.ravel(), matrix.ravel())  # three times as fast as matrix[present]


def _binary(content: Bytes, sizes: Sizes) -> pa.Array:
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(sizes), buffers)
