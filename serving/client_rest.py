"""The client's calls over REST, in the column form."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
from numpy.typing import NDArray

from serving.client import Arrays, ModelVersion, SignatureInfo
from serving.rows import InputColumn
from serving.server.status import Code, StatusError

__all__ = ["RestTransport", "code_of"]

_CODES = {
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
    return Code.OK if http_status == httpx.codes.OK else _CODES.get(http_status, Code.UNKNOWN)


class RestTransport:
    """Calls the REST API on one pool of connections."""

    def __init__(self, target: str, *, timeout_s: float) -> None:
        base_url = target if "://" in target else f"http://{target}"
        # A proxy of the environment is for the outside world, not for a model server beside us.
        self._http = httpx.Client(base_url=base_url, timeout=timeout_s, trust_env=False)

    def signature(self, model_name: str, name: str, *, version: int | None) -> SignatureInfo:
        """Returns what a signature takes and gives."""
        body = self._call("GET", _path(model_name, version) + "/metadata")
        found = body["metadata"]["signature_def"]["signature_def"]
        if name not in found:
            text = f"model {model_name} has no signature {name!r}; it has: {', '.join(sorted(found))}"
            raise StatusError(Code.FAILED_PRECONDITION, text)
        inputs, outputs = found[name]["inputs"], found[name]["outputs"]
        columns = tuple(_column(alias, inputs[alias]) for alias in sorted(inputs))
        return SignatureInfo(columns, {alias: output["dtype"] for alias, output in outputs.items()})

    def predict(
        self, model_name: str, inputs: Arrays, *, info: SignatureInfo, signature: str, version: int | None
    ) -> dict[str, NDArray[Any]]:
        """Returns the outputs for arrays."""
        columns = {name: _to_json(array) for name, array in inputs.items()}
        request = json.dumps({"signature_name": signature, "inputs": columns}).encode()
        outputs = self._call("POST", _path(model_name, version) + ":predict", request)["outputs"]
        if len(info.outputs) == 1:
            outputs = dict.fromkeys(info.outputs, outputs)
        return {name: _from_json(value, info.outputs[name]) for name, value in outputs.items()}

    def versions(self, model_name: str) -> list[ModelVersion]:
        """Returns the versions that the server knows."""
        body = self._call("GET", _path(model_name, None))
        return [
            ModelVersion(int(found["version"]), found["state"], found["status"]["error_message"])
            for found in body["model_version_status"]
        ]

    def _call(self, method: str, path: str, body: bytes | None = None) -> Any:
        try:
            response = self._http.request(method, path, content=body)
        except httpx.TimeoutException as error:
            raise StatusError(Code.DEADLINE_EXCEEDED, f"no answer in time from {self._http.base_url}") from error
        except httpx.HTTPError as error:
            raise StatusError(Code.UNAVAILABLE, f"{self._http.base_url} cannot be reached: {error}") from error
        try:
            value = json.loads(response.content)
        except ValueError as error:
            text = f"{self._http.base_url} answered {response.status_code} with a body that is no JSON"
            raise StatusError(_CODES.get(response.status_code, Code.UNKNOWN), text) from error
        if response.status_code != httpx.codes.OK:
            raise StatusError(_CODES.get(response.status_code, Code.UNKNOWN), str(value.get("error", value)))
        return value

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()


def _path(model_name: str, version: int | None) -> str:
    path = f"/v1/models/{quote(model_name, safe='')}"
    return path if version is None else f"{path}/versions/{version}"


def _column(name: str, info: Any) -> InputColumn:
    shape = info["tensor_shape"]
    sizes = None if shape["unknown_rank"] else tuple(int(dim["size"]) for dim in shape["dim"])
    return InputColumn(name, info["dtype"], sizes)


def _to_json(array: NDArray[Any]) -> Any:
    if array.dtype != np.object_:
        return array.tolist()
    flat = [{"b64": base64.b64encode(value).decode("ascii")} for value in array.ravel()]
    if array.ndim == 1:
        return flat
    width = array.shape[1]
    return [flat[row * width : (row + 1) * width] for row in range(array.shape[0])]


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
