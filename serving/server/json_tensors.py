"""REST values: JSON to arrays and back, by the rules of TF Serving's REST API.

A level of nested lists is checked and flattened at once by C-level functions; no Python loop runs over values.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tensorflow.core.framework import types_pb2

from serving.server.status import Code, StatusError

__all__ = ["array_to_json", "value_to_array"]

_MAX_RANK = 32
_INT_TYPES: dict[int, tuple[type[np.generic], int, int]] = {
    types_pb2.DT_INT8: (np.int8, -(2**31), 2**31 - 1),
    types_pb2.DT_INT16: (np.int16, -(2**31), 2**31 - 1),
    types_pb2.DT_INT32: (np.int32, -(2**31), 2**31 - 1),
    types_pb2.DT_UINT8: (np.uint8, -(2**31), 2**31 - 1),
    types_pb2.DT_INT64: (np.int64, -(2**63), 2**63 - 1),
    types_pb2.DT_UINT32: (np.uint32, 0, 2**32 - 1),
    types_pb2.DT_UINT64: (np.uint64, 0, 2**64 - 1),
}
_FLOAT_TYPES: dict[int, type[np.generic]] = {types_pb2.DT_FLOAT: np.float32, types_pb2.DT_DOUBLE: np.float64}


def value_to_array(value: Any, dtype: int, *, name: str) -> NDArray[Any]:
    """Returns the array of a JSON value: a scalar, or lists nested to equal lengths.

    Args:
        value: as Python's json reads it.
        dtype: DataType enum number of the input.
        name: of the input, for messages.

    Raises:
        StatusError: INVALID_ARGUMENT if the value does not fit, UNIMPLEMENTED for other dtypes.
    """
    flat, shape = _flatten(value, name)
    return _leaves_to_array(flat, dtype, name).reshape(shape)


def _flatten(value: Any, name: str) -> tuple[list[Any], tuple[int, ...]]:
    level: list[Any] = [value]
    shape: list[int] = []
    while level and (kinds := set(map(type, level))) and list in kinds:
        if len(kinds) > 1:
            raise _bad(f"Encountered list at unexpected level in tensor {name}")
        lengths = set(map(len, level))
        if len(lengths) > 1:
            raise _bad(f"Expecting tensor size {max(lengths)} but got {min(lengths)}: tensor {name} has ragged lists")
        shape.append(lengths.pop())
        if len(shape) > _MAX_RANK:
            raise _bad(f"Encountered list at unexpected depth: tensor {name} has more than {_MAX_RANK} levels")
        level = list(itertools.chain.from_iterable(level))
    return level, tuple(shape)


def _leaves_to_array(leaves: list[Any], dtype: int, name: str) -> NDArray[Any]:
    kinds = set(map(type, leaves))
    if dtype in _FLOAT_TYPES:
        _check_kinds(kinds, {int, float}, leaves, "float" if dtype == types_pb2.DT_FLOAT else "double", name)
        return _floats(leaves, _FLOAT_TYPES[dtype], name)
    if dtype in _INT_TYPES:
        _check_kinds(kinds, {int}, leaves, types_pb2.DataType.Name(dtype).removeprefix("DT_").lower(), name)
        return _integers(leaves, dtype, name)
    if dtype == types_pb2.DT_BOOL:
        _check_kinds(kinds, {bool}, leaves, "bool", name)
        return np.array(leaves, dtype=np.bool_)
    if dtype == types_pb2.DT_STRING:
        _check_kinds(kinds, {str, dict}, leaves, "string", name)
        result: NDArray[Any] = np.empty(len(leaves), dtype=np.object_)
        result[:] = [_to_bytes(leaf, name) for leaf in leaves]
        return result
    text = f"JSON conversion of type {types_pb2.DataType.Name(dtype)} is not supported, of input {name}"
    raise StatusError(Code.UNIMPLEMENTED, text)


def _check_kinds(kinds: set[type], allowed: set[type], leaves: list[Any], expected: str, name: str) -> None:
    if not kinds <= allowed:
        wrong = next(leaf for leaf in leaves if type(leaf) not in allowed)
        raise _bad(f"JSON Value: {_shorten(wrong)} of tensor {name} is not of expected type: {expected}")


def _floats(leaves: list[Any], target: type[np.generic], name: str) -> NDArray[Any]:
    try:
        wide = np.array(leaves, dtype=np.float64)
    except OverflowError as error:
        raise _bad(f"a number of tensor {name} is too big to be stored in a double") from error
    with np.errstate(over="ignore", under="ignore"):
        return wide.astype(target)


def _integers(leaves: list[Any], dtype: int, name: str) -> NDArray[Any]:
    target, lowest, highest = _INT_TYPES[dtype]
    if leaves and (min(leaves) < lowest or max(leaves) > highest):
        wrong = min(leaves) if min(leaves) < lowest else max(leaves)
        expected = types_pb2.DataType.Name(dtype).removeprefix("DT_").lower()
        raise _bad(f"JSON Value: {_shorten(wrong)} of tensor {name} is not of expected type: {expected}")
    # Narrow types are cut to their bits, as a C++ cast does.
    carrier = np.uint64 if target is np.uint64 else np.int64
    return np.array(leaves, dtype=carrier).astype(target)


def _to_bytes(leaf: Any, name: str) -> bytes:
    try:
        if isinstance(leaf, str):
            return leaf.encode("utf-8", "surrogateescape")
        if leaf.keys() == {"b64"} and isinstance(leaf["b64"], str):
            return base64.b64decode(leaf["b64"], validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError) as error:
        raise _bad(f"tensor {name}: {_shorten(leaf)} is not a valid string: {error}") from error
    raise _bad(f"JSON Value: {_shorten(leaf)} of tensor {name} is not of expected type: string")


def array_to_json(array: NDArray[Any], *, as_base64: bool = False) -> list[str] | str:
    """Returns the JSON text of each row of an array, or of the value if it is a scalar.

    Args:
        array: an output.
        as_base64: write strings as {"b64": ...}, which the names of outputs ending in "_bytes" ask for.

    Raises:
        StatusError: INVALID_ARGUMENT for dtypes that JSON cannot hold.
    """
    texts = _leaf_texts(array, as_base64=as_base64)
    if array.ndim == 0:
        return texts[0]
    for axis in range(array.ndim - 1, 0, -1):
        size, groups = array.shape[axis], math.prod(array.shape[:axis])
        texts = ["[" + ", ".join(texts[i * size : (i + 1) * size]) + "]" for i in range(groups)]
    return texts


def _leaf_texts(array: NDArray[Any], *, as_base64: bool) -> list[str]:
    values = array.ravel().tolist()
    if array.dtype == np.float32:
        return _float_texts(values, ".9g", array.dtype)
    if array.dtype == np.float64:
        return _float_texts(values, ".17g", array.dtype)
    if array.dtype.kind in "iu":
        return list(map(str, values))
    if array.dtype == np.bool_:
        return ["true" if value else "false" for value in values]
    if array.dtype == np.object_:
        return list(map(_base64_text if as_base64 else _string_text, values))
    raise _bad(f"outputs of type {array.dtype} cannot be written as JSON")


def _float_texts(values: Sequence[float], exact: str, dtype: np.dtype[Any]) -> list[str]:
    short = [format(value, ".6g") for value in values]
    if not short:
        return short
    with np.errstate(over="ignore"):
        survives = np.array(short, dtype=np.float64).astype(dtype) == np.array(values, dtype=dtype)
    return [
        _as_float(text if kept else format(value, exact))
        for text, kept, value in zip(short, survives.tolist(), values, strict=True)
    ]


def _as_float(text: str) -> str:
    if "." in text or "e" in text:
        return text
    return {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text) or text + ".0"


def _string_text(value: bytes) -> str:
    return json.dumps(value.decode("utf-8", "surrogateescape"), ensure_ascii=False)


def _base64_text(value: bytes) -> str:
    return '{"b64": "' + base64.b64encode(value).decode("ascii") + '"}'


def _bad(message: str) -> StatusError:
    return StatusError(Code.INVALID_ARGUMENT, message)


def _shorten(value: Any) -> str:
    text = repr(value) if isinstance(value, int | float | bool) else json.dumps(value, default=str, ensure_ascii=True)
    return text if len(text) <= 100 else text[:97] + "..."
