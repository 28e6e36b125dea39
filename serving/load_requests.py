"""Rows as the ready requests of a load test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from preprocessing.errors import ConfigError
from serving.client import connect
from serving.client_calls import Asked, Selected
from serving.client_signatures import DEFAULT_SIGNATURE, Signatures
from serving.load_send import PREDICT, LoadTarget
from serving.packed import PACKED_SIGNATURE
from serving.rank_request import RANK_SIGNATURE, candidate_columns, rank_arrays

__all__ = ["load_requests"]

Row = Mapping[str, Any]


def load_requests(
    address: str,
    rows: Sequence[Row],
    *,
    selected: Selected,
    api: Literal["grpc", "rest"] = "grpc",
    signature: str = DEFAULT_SIGNATURE,
    batch: int = 1,
    timeout_s: float = 10.0,
) -> tuple[LoadTarget, list[bytes]]:
    """Returns where to send, and a request for each `batch` rows; rows left over at the end are not sent.

    Args:
        address: host:port of the server, which is asked for the signature.
        rows: raw columns by name.
        selected: which model.
        api: of the address.
        signature: in which form; of "rank", the first row of a batch gives the user and each one a candidate.
        batch: rows a request.
        timeout_s: for the server to describe the signature.

    Raises:
        ConfigError: if there are fewer rows than one request takes.
        ServingError: if a row does not fit, or the server cannot be asked.
    """
    if len(rows) < batch:
        raise ConfigError(f"{len(rows)} rows are fewer than --batch {batch}; give more rows, or a smaller batch")
    with connect(address, api=api, timeout_s=timeout_s) as client:

        def ask(name: str) -> Any:
            return client.signature(selected.model_name, name=name, version=selected.version, label=selected.label)

        asked = ask(signature)
        named = ask(DEFAULT_SIGNATURE) if signature in {PACKED_SIGNATURE, RANK_SIGNATURE} else asked
    infos = Signatures(signature, asked, named)
    groups = [rows[start : start + batch] for start in range(0, len(rows) - batch + 1, batch)]
    made = [Asked(selected, signature, _arrays(group, infos)) for group in groups]
    return _target(address, selected, api), [_body(one, api) for one in made]


def _arrays(rows: Sequence[Row], infos: Signatures) -> Any:
    if infos.name != RANK_SIGNATURE:
        return infos.arrays(rows, ignore_unknown=False)
    names = {column.name for column in candidate_columns(infos.asked, infos.named)}
    context = {name: value for name, value in rows[0].items() if name not in names}
    candidates = [{name: value for name, value in row.items() if name in names} for row in rows]
    return rank_arrays(context, candidates, rank=infos.asked, named=infos.named)


def _target(address: str, selected: Selected, api: Literal["grpc", "rest"]) -> LoadTarget:
    if api == "grpc":
        return LoadTarget(address, "grpc", PREDICT)
    from serving.client_rest_messages import path_of

    return LoadTarget(address, "rest", path_of(selected) + ":predict")


def _body(asked: Asked, api: Literal["grpc", "rest"]) -> bytes:
    if api == "grpc":
        from serving.client_grpc_messages import predict_request

        return predict_request(asked).SerializeToString()
    from serving.client_rest_messages import predict_body

    return predict_body(asked)
