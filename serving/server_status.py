"""What running servers say of a model: the state of its versions, and which version a label is on.

An address is host:port of a server's REST port, or grpc://host:port.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from preprocessing.errors import ServingError

__all__ = ["LOADED", "States", "VersionState", "ask_label", "ask_versions"]

_TIMEOUT_S = 5.0
_GRPC = "grpc://"
LOADED = frozenset({"LOADING", "AVAILABLE", "UNLOADING"})


@dataclasses.dataclass(frozen=True)
class VersionState:
    """State of a version at a server, as START, LOADING, AVAILABLE, UNLOADING or END; `error` says why it ended."""

    state: str
    error: str = ""


States = Mapping[int, VersionState]


def ask_versions(address: str, model: str) -> dict[int, VersionState] | None:
    """Returns the state of each version that a server knows of; None if no server listens there.

    Raises:
        ServingError: if something is there and does not answer as a model server.
    """
    if address.startswith(_GRPC):
        return _ask_versions_grpc(address.removeprefix(_GRPC), model)
    response = _get(address, f"/v1/models/{quote(model, safe='')}")
    if response is None:
        return None
    body = _body(response, address)
    if response.status_code == httpx.codes.NOT_FOUND:
        return {}
    found = body.get("model_version_status")
    if response.status_code != httpx.codes.OK or not isinstance(found, list):
        raise ServingError(f"the server at {address} answers {response.status_code}: {str(body)[:200]}")
    states = {}
    for each in found:
        status = each.get("status", {})
        failed = status.get("error_code", "OK") != "OK"
        text = (status.get("error_message") or status.get("error_code", "")) if failed else ""
        states[int(each["version"])] = VersionState(each["state"], text)
    return states


def ask_label(address: str, model: str, label: str) -> int | None:
    """Returns the version that a label is on at a server, or None if there is none to answer for it.

    Raises:
        ServingError: if something is there and does not answer as a model server.
    """
    if address.startswith(_GRPC):
        return _ask_label_grpc(address.removeprefix(_GRPC), model, label)
    # The status of a label is that of all versions; only the metadata follow it.
    response = _get(address, f"/v1/models/{quote(model, safe='')}/labels/{quote(label, safe='')}/metadata")
    if response is None or response.status_code != httpx.codes.OK:
        return None
    try:
        return int(_body(response, address)["model_spec"]["version"])
    except (KeyError, TypeError, ValueError) as error:
        raise ServingError(f"the server at {address} gives metadata without a version") from error


def _get(address: str, path: str) -> httpx.Response | None:
    try:
        # A proxy of the environment is for the outside world.
        return httpx.get(f"http://{address}{path}", timeout=_TIMEOUT_S, trust_env=False)
    except httpx.ConnectError as error:
        if "refused" in str(error):
            return None
        raise ServingError(f"the server at {address} cannot be reached: {error}; see serve.servers") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise ServingError(f"the server at {address} does not answer: {reason}; see serve.servers") from error


def _body(response: httpx.Response, address: str) -> dict[str, Any]:
    try:
        body = json.loads(response.content)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise ServingError(f"what listens at {address} is no model server: {response.text[:80]!r}; see serve.servers")
    return body


def _ask_versions_grpc(target: str, model: str) -> dict[int, VersionState] | None:
    import grpc
    from tensorflow_serving.apis import get_model_status_pb2, model_service_pb2_grpc

    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = model
    with grpc.insecure_channel(target) as channel:
        try:
            stub = model_service_pb2_grpc.ModelServiceStub(channel)
            response = stub.GetModelStatus(request, timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            return _grpc_fault(error, target)
    names = get_model_status_pb2.ModelVersionStatus.State.Name
    return {
        found.version: VersionState(names(found.state), found.status.error_message)
        for found in response.model_version_status
    }


def _grpc_fault(error: Any, target: str) -> dict[int, VersionState] | None:
    import grpc

    if error.code() is grpc.StatusCode.NOT_FOUND:
        return {}
    if error.code() is grpc.StatusCode.UNAVAILABLE and "refused" in error.details():
        return None
    raise ServingError(f"the server at {target} does not answer: {error.details()}; see serve.servers") from error


def _ask_label_grpc(target: str, model: str, label: str) -> int | None:
    import grpc
    from tensorflow_serving.apis import get_model_metadata_pb2, prediction_service_pb2_grpc

    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = model
    request.model_spec.version_label = label
    with grpc.insecure_channel(target) as channel:
        try:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            return int(stub.GetModelMetadata(request, timeout=_TIMEOUT_S).model_spec.version.value)
        except grpc.RpcError:
            return None
