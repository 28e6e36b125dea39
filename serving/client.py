"""A synchronous client of any server that speaks TF Serving's protocols: rows in, outputs out.

`with connect("127.0.0.1:8500") as client: client.predict("shop", [{"user_id": "u1", "price": 9.5}])`
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from serving.rows import InputColumn, rows_to_arrays
from serving.server.status import Code, StatusError

__all__ = ["Client", "ModelVersion", "SignatureInfo", "Transport", "connect"]

Arrays = Mapping[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class SignatureInfo:
    """A signature as a server describes it: input columns and the dtype of each output, such as "DT_FLOAT"."""

    inputs: tuple[InputColumn, ...]
    outputs: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class ModelVersion:
    """A version as a server reports it; `state` is START, LOADING, AVAILABLE, UNLOADING or END."""

    version: int
    state: str
    error: str


class Transport(Protocol):
    """How requests travel; every method raises StatusError with the server's code."""

    def signature(self, model_name: str, name: str, *, version: int | None) -> SignatureInfo:
        """Returns what a signature takes and gives."""

    def predict(
        self, model_name: str, inputs: Arrays, *, info: SignatureInfo, signature: str, version: int | None
    ) -> dict[str, NDArray[Any]]:
        """Returns the outputs for arrays."""

    def versions(self, model_name: str) -> list[ModelVersion]:
        """Returns the versions that the server knows."""

    def close(self) -> None:
        """Frees the connection."""


class Client:
    """Sends rows to a model server; made by `connect`, safe for use by several threads at once."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: dict[tuple[str, str, int | None], SignatureInfo] = {}

    def predict(
        self,
        model_name: str,
        rows: Sequence[Mapping[str, Any]],
        *,
        version: int | None = None,
        signature: str = "serving_default",
        ignore_unknown: bool = False,
    ) -> dict[str, NDArray[Any]]:
        """Returns each output of the model, one entry a row; strings are object arrays of bytes.

        Args:
            model_name: as the server knows it.
            rows: raw columns by name; what is absent or None is sent as missing.
            version: the newest available one by default.
            signature: which takes named raw columns.
            ignore_unknown: drop keys that the signature does not have, instead of refusing the row.

        Raises:
            ServingError: if a row does not fit the signature; as StatusError, with `code` and `message`, if the
                server cannot be reached in time or refuses the request.
        """
        key = (model_name, signature, version)
        info = self._known.get(key)
        if info is None:
            return self._send(key, self._look_up(key), rows, ignore_unknown)
        try:
            return self._send(key, info, rows, ignore_unknown)
        except StatusError as error:
            if error.code not in {Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION}:
                raise
            # A new version may have brought another signature since it was looked up.
            current = self._look_up(key)
            if current == info:
                raise
            return self._send(key, current, rows, ignore_unknown)

    def _look_up(self, key: tuple[str, str, int | None]) -> SignatureInfo:
        model_name, signature, version = key
        info = self._transport.signature(model_name, signature, version=version)
        self._known[key] = info
        return info

    def _send(
        self,
        key: tuple[str, str, int | None],
        info: SignatureInfo,
        rows: Sequence[Mapping[str, Any]],
        ignore_unknown: bool,
    ) -> dict[str, NDArray[Any]]:
        model_name, signature, version = key
        arrays = rows_to_arrays(rows, info.inputs, ignore_unknown=ignore_unknown)
        return self._transport.predict(model_name, arrays, info=info, signature=signature, version=version)

    def signature(self, model_name: str, *, name: str = "serving_default", version: int | None = None) -> SignatureInfo:
        """Returns what a signature takes and gives."""
        return self._look_up((model_name, name, version))

    def versions(self, model_name: str) -> list[ModelVersion]:
        """Returns the versions of a model that the server knows, newest first."""
        return self._transport.versions(model_name)

    def close(self) -> None:
        """Frees the connection."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(target: str, *, api: Literal["grpc", "rest"] = "grpc", timeout_s: float = 10.0) -> Client:
    """Returns a client of the server at `target`, such as "127.0.0.1:8500"; nothing is sent yet.

    Args:
        target: host:port of the server's gRPC or HTTP port.
        api: which of the two it is.
        timeout_s: deadline of each call.
    """
    # Imported here: gRPC needs TensorFlow's protos and their start-up time, REST does not.
    if api == "grpc":
        from serving.client_grpc import GrpcTransport

        return Client(GrpcTransport(target, timeout_s=timeout_s))
    from serving.client_rest import RestTransport

    return Client(RestTransport(target, timeout_s=timeout_s))
