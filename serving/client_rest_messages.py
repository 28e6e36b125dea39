"""The client's REST paths and bodies from values, and values from answers; predict uses the column form."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from serving.client_calls import Answer, Asked, ModelVersion, Selected, SignatureInfo
from serving.client_errors import InvalidRequestError, status_error
from serving.rows import InputColumn
from serving.server.status import Code

__all__ = ["code_of", "path_of", "predict_body", "read_body", "read_predict", "read_signature", "read_versions"]

_OK = 200
_CODES = {
    _OK: Code.OK,
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    409: Code.ABORTED,
    429: Code.RESOURCE_EXHAUSTED,
    499: Code.CANCELLED,
    501: Code.UNIMPLEMENTED,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}
_DTYPES: dict[str, type[np.generic]] = {
    "DT_FLOAT": np.float32,
    "DT_DOUBLE": np.float64,
    "DT_INT64": np.int64,
    "DT_INT32": np.int32,
    "DT_BOOL": np.bool_,
}


def code_of(http_status: int) -> Code:
    """Returns the status code that an HTTP status stands for."""
    return _CODES.get(http_status, Code.UNKNOWN)


def path_of(selected: Selected) -> str:
    """Returns the path of a model, a version of it, or a label."""
    path = f"/v1/models/{quote(selected.model_name, safe='')}"
    if selected.label is not None:
        return f"{path}/labels/{quote(selected.label, safe='')}"
    return path if selected.version is None else f"{path}/versions/{selected.version}"


def read_body(http_status: int, content: bytes, *, server: str) -> Any:
    """Returns the JSON value of an answer.

    Raises:
        StatusError: if the answer is an error, or no JSON.
    """
    code = code_of(http_status)
    try:
        value = json.loads(content)
    except ValueError as error:
        text = f"{server} answered {http_status} with a body that is no JSON"
        raise status_error(Code.UNKNOWN if code is Code.OK else code, text) from error
    if code is not Code.OK:
        raise status_error(code, str(value.get("error", value) if isinstance(value, dict) else value))
    return value


def read_signature(body: Any, selected: Selected, name: str) -> SignatureInfo:
    """Returns what a signature takes and gives.

    Raises:
        StatusError: FAILED_PRECONDITION, if the model has no such signature.
    """
    found = body["metadata"]["signature_def"]["signature_def"]
    if name not in found:
        text = f"model {selected.model_name} has no signature {name!r}; it has: {', '.join(sorted(found))}"
        raise status_error(Code.FAILED_PRECONDITION, text)
    inputs, outputs = found[name]["inputs"], found[name]["outputs"]
    columns = tuple(_column(alias, inputs[alias]) for alias in sorted(inputs))
    return SignatureInfo(columns, {alias: output["dtype"] for alias, output in outputs.items()})


def predict_body(asked: Asked) -> bytes:
    """Returns the request to predict; REST has no output filter, so all outputs come."""
    columns = {name: _to_json(array) for name, array in asked.inputs.items()}
    return json.dumps({"signature_name": asked.signature, "inputs": columns}).encode()


def read_predict(body: Any, asked: Asked, info: SignatureInfo) -> Answer:
    """Returns the outputs that were asked for."""
    outputs = body["outputs"]
    if len(info.outputs) == 1:
        outputs = dict.fromkeys(info.outputs, outputs)
    unknown = set(asked.outputs) - outputs.keys()
    if unknown:
        text = f"output {min(unknown)!r} is not known; the signature has: {', '.join(sorted(info.outputs))}"
        raise InvalidRequestError(Code.INVALID_ARGUMENT, text)
    wanted = asked.outputs or tuple(outputs)
    return Answer({name: _from_json(outputs[name], info.outputs[name]) for name in wanted}, asked.selected.version)


def read_versions(body: Any) -> list[ModelVersion]:
    """Returns the versions that the server knows."""
    return [
        ModelVersion(int(found["version"]), found["state"], found["status"]["error_message"])
        for found in body["model_version_status"]
    ]


def _column(name: str, info: Any) -> InputColumn:
    shape = info["tensor_shape"]
    sizes = None if shape["unknown_rank"] else tuple(int(dim["size"]) for dim in shape["dim"])
    return InputColumn(name, info["dtype"], sizes)


def _to_json(array: NDArray[Any]) -> Any:
    if array.dtype != np.object_:
        return array.tolist()
    if array.ndim > 1:
        return [_to_json(part) for part in array]
    return [{"b64": base64.b64encode(value).decode("ascii")} for value in array]


def _from_json(value: Any, dtype: str) -> NDArray[Any]:
    if dtype in _DTYPES:
        return np.array(value, dtype=_DTYPES[dtype])
    array: NDArray[Any] = np.array(value, dtype=np.object_)
    if dtype == "DT_STRING":
        flat = array.ravel()
        for position, text in enumerate(flat):
            flat[position] = base64.b64decode(text["b64"]) if isinstance(text, dict) else text.encode()
        return flat.reshape(array.shape)
    return array
