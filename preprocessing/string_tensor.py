"""Byte strings from Arrow to a TensorFlow string tensor in its serialised form, without a Python object a value.

`tf.io.parse_tensor` reads the form back; it is also what vocabularies are stored as beside a SavedModel.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["serialise_strings", "varint"]

# Fields of the TensorProto message: dtype = 1 (DT_STRING is 7), tensor_shape = 2, string_val = 8.
_DTYPE_STRING = b"\x08\x07"
_SHAPE_TAG = b"\x12"
_STRING_VAL_TAG = b"\x42"


def varint(value: int) -> bytes:
    """Returns the protocol-buffer varint of a number of at least 0."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def serialise_strings(values: pa.Array) -> bytes:
    """Returns the serialised TensorProto, dtype string and shape [N], of a binary array without nulls."""
    size = b"\x08" + varint(len(values))
    dim = b"\x12" + varint(len(size)) + size
    header = _DTYPE_STRING + _SHAPE_TAG + varint(len(dim)) + dim
    if len(values) == 0:
        return header
    values = values.cast(pa.large_binary())
    joined = pc.binary_join_element_wise(_prefixes(values), values, pa.scalar(b"", pa.large_binary()))
    return header + _content(joined)


def _prefixes(values: pa.Array) -> pa.Array:
    """Returns tag and length of each value; few lengths are distinct."""
    lengths = pc.dictionary_encode(pc.binary_length(values))
    prefixes = [_STRING_VAL_TAG + varint(length) for length in lengths.dictionary.to_pylist()]
    return pa.array(prefixes, pa.large_binary()).take(lengths.indices)


def _content(values: pa.Array) -> bytes:
    """Returns the bytes of all values of a large_binary array, one after another."""
    _, offsets_buffer, data = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)
    first, last = offsets[values.offset], offsets[values.offset + len(values)]
    return data[int(first) : int(last)].to_pybytes()
