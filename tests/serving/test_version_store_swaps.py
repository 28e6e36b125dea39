"""Versions come, get labels and go while requests come in; and the same steps against a server that runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from preprocessing.errors import ServingError
from serving.labels import labels_of, promote, rollback
from serving.launch import ServeOptions, serve_command, start, wait_until_available
from serving.lifecycle import list_infos, pin, retire
from serving.rollout import Place
from serving.version_store import publish, versions
from tests.benchmarks.swap import measure

pytestmark = pytest.mark.serving


@pytest.mark.slow
def test_no_request_fails_while_twenty_versions_are_published_labelled_and_retired(tmp_path: Path) -> None:
    found = measure(tmp_path, count=20, qps=200, quiet_s=3)
    assert found["failed"] == {"before": {}, "during": {}, "after": {}}
    assert found["answered"]["during"] > 20 * 200  # a swap takes a second at the least
    assert found["left"] == [21]


@pytest.fixture
def served(
    tmp_path: Path, half_plus: Callable[[int], Path], free_port: Callable[[], int]
) -> Iterator[tuple[Place, str, str]]:
    """A server of versions 1 to 3 of y = x / 2 + k, the first stable: its place, REST and gRPC address."""
    port, rest_port = free_port(), free_port()
    place = Place(tmp_path / "store" / "half", (f"127.0.0.1:{rest_port}",), poll_s=1.0, load_timeout_s=30)
    for k in (1, 2, 3):
        publish(place.store, half_plus(k), metadata={})
    promote(place, 1, why="first")
    flags: dict[str, str | int | bool] = {
        "model_config_file_poll_wait_seconds": 1,
        "allow_version_labels_for_unavailable_models": True,
        "max_num_load_retries": 0,
        "num_load_threads": 1,
    }
    options = ServeOptions(
        model_config_file=place.root / "models.config", port=port, rest_api_port=rest_port, flags=flags
    )
    server = start(serve_command(options, backend="embedded"), log_path=tmp_path / "server.log")
    try:
        wait_until_available("127.0.0.1", rest_port, model_name="half", timeout_s=60, server=server)
        yield place, f"127.0.0.1:{rest_port}", f"grpc://127.0.0.1:{port}"
    finally:
        server.stop()


def answer(address: str, path: str = "") -> Any:
    response = httpx.post(f"http://{address}/v1/models/half{path}:predict", content='{"instances": [0.0]}', timeout=20)
    return response.json().get("predictions", response.status_code)


def test_labels_pins_and_rollbacks_reach_the_server(served: tuple[Place, str, str]) -> None:
    place, rest, _ = served
    assert answer(rest, "/labels/stable") == [1.0]
    promote(place, 3, "canary", why="try")
    assert (answer(rest, "/labels/stable"), answer(rest, "/labels/canary")) == ([1.0], [3.0])
    promote(place, 3, why="good")
    assert answer(rest, "/labels/stable") == [3.0]
    pin(place, 2, served=True, why="compare")
    assert answer(rest, "/versions/2") == [2.0]
    assert {info.version for info in list_infos(place) if info.servers} >= {2, 3}
    rollback(place, why="bad")
    assert (answer(rest, "/labels/stable"), answer(rest, "/labels/canary")) == ([1.0], [1.0])
    retire(place, 3, why="bad")
    assert versions(place.store) == [1, 2]
    assert answer(rest) == [2.0]  # pinned as served, and the newest


def test_a_version_that_does_not_load_changes_nothing(served: tuple[Place, str, str]) -> None:
    place, rest, _ = served
    (place.store / "3" / "saved_model.pb").unlink()
    (place.store / "3" / "saved_model.pb").write_bytes(b"garbage")
    with pytest.raises(ServingError, match=r"could not load version 3: .*stable stays on version 1"):
        promote(place, 3, why="hope")
    assert labels_of(place.store) == {"stable": 1}
    assert answer(rest, "/labels/stable") == answer(rest) == [1.0]
    promote(place, 2, why="better")
    assert answer(rest, "/labels/stable") == [2.0]


def test_a_server_is_watched_over_grpc_as_well(served: tuple[Place, str, str]) -> None:
    place, rest, grpc_address = served
    over_grpc = Place(place.store, (grpc_address,), poll_s=1.0, load_timeout_s=30)
    assert promote(over_grpc, 2, why="").endswith(f"served by {grpc_address}")
    assert answer(rest, "/labels/stable") == [2.0]
    assert "no server runs" not in rollback(over_grpc, why="")
    assert promote(Place(place.store, ("grpc://127.0.0.1:9",)), 3, why="") == "stable is on version 3, was on 1"
