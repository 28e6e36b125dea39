"""The body of a REST predict: row form or column form to arrays, and the answer in the same form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from numpy.typing import NDArray

from serving.server.json_tensors import array_to_json, value_to_array
from serving.server.signature import Signature
from serving.server.status import Code, StatusError

__all__ = ["format_columns", "format_rows", "read_columns", "read_rows"]

Arrays = dict[str, NDArray[Any]]


def read_rows(instances: Any, signature: Signature) -> Arrays:
    """Returns the inputs that `instances` holds, a value or an object a row: each of shape [n, ...].

    Raises:
        StatusError: INVALID_ARGUMENT, if it does not fit the signature.
    """
    if not isinstance(instances, list) or not instances:
        raise _bad("Expecting 'instances' to be a non-empty list")
    names = signature.input_dtypes.keys()
    if len(names) == 1 and not _is_object(instances[0]):
        (name,) = names
        return {name: value_to_array(instances, signature.input_dtypes[name], name=name)}
    for position, row in enumerate(instances):
        if not isinstance(row, dict):
            raise _bad(f"Expecting object value of instances[{position}]: the signature has {len(names)} inputs")
        if row.keys() != names:
            raise _bad(_wrong_names(position, row, names))
    return {
        name: value_to_array(list(map(itemgetter(name), instances)), dtype, name=name)
        for name, dtype in signature.input_dtypes.items()
    }


def read_columns(inputs: Any, signature: Signature) -> Arrays:
    """Returns the inputs that `inputs` holds: an object of tensors, or one bare tensor.

    Raises:
        StatusError: INVALID_ARGUMENT, if it does not fit the signature.
    """
    names = signature.input_dtypes
    if not _is_object(inputs):
        if len(names) != 1:
            raise _bad(f"'inputs' is a plain value but the signature has {len(names)} named inputs: give an object")
        inputs = dict.fromkeys(names, inputs)
    missing = [name for name in names if name not in inputs]
    if missing:
        raise _bad(f"Missing named input: {missing[0]} in 'inputs' object.")
    return {name: value_to_array(inputs[name], dtype, name=name) for name, dtype in names.items()}


def format_rows(outputs: Mapping[str, NDArray[Any]]) -> str:
    """Returns the body of an answer in row form.

    Raises:
        StatusError: INVALID_ARGUMENT, if outputs have no or different first dimensions.
    """
    for name, array in outputs.items():
        if array.ndim == 0:
            raise _bad(f"Tensor name: {name} has no shape information: it cannot be written in row form")
    sizes = {array.shape[0] for array in outputs.values()}
    if len(sizes) > 1:
        raise _bad("Tensors have inconsistent first dimensions: the answer cannot be written in row form")
    columns = [_texts(name, array) for name, array in outputs.items()]
    if len(columns) == 1:
        rows = columns[0]
    else:
        keys = [json.dumps(name) + ": " for name in outputs]
        rows = ["{" + ", ".join(map(str.__add__, keys, row)) + "}" for row in zip(*columns, strict=True)]
    return '{"predictions": [' + ", ".join(rows) + "]}"


def format_columns(outputs: Mapping[str, NDArray[Any]]) -> str:
    """Returns the body of an answer in column form."""
    values = {name: _whole(_texts(name, array)) for name, array in outputs.items()}
    if len(values) == 1:
        (text,) = values.values()
    else:
        text = "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in values.items()) + "}"
    return '{"outputs": ' + text + "}"


def _texts(name: str, array: NDArray[Any]) -> list[str] | str:
    return array_to_json(array, as_base64=name.endswith("_bytes"))


def _whole(texts: list[str] | str) -> str:
    return texts if isinstance(texts, str) else "[" + ", ".join(texts) + "]"


def _is_object(value: Any) -> bool:
    """Returns whether a value names inputs: {"b64": ...} is a string."""
    return isinstance(value, dict) and value.keys() != {"b64"}


def _wrong_names(position: int, row: Mapping[str, Any], names: Any) -> str:
    missing, extra = sorted(names - row.keys()), sorted(row.keys() - names)
    where = f"Failed to process element: {position} of 'instances' list."
    return f"{where} Missing inputs: {missing}. Unexpected inputs: {extra}."


def _bad(message: str) -> StatusError:
    return StatusError(Code.INVALID_ARGUMENT, message)
