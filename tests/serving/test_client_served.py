"""The clients, the request log and the load test against a real server process."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.client import connect
from serving.client_async import connect_async
from serving.client_calls import Selected
from serving.client_errors import InvalidRequestError, NotFoundError, UnavailableError
from serving.launch import ServeOptions, ServerProcess, serve_command, start, wait_until_available
from serving.load_requests import load_requests
from serving.loadtest import run_load
from serving.request_log import RequestLog
from serving.request_log_files import read_log
from serving.request_log_spec import RequestLogSpec

pytestmark = [pytest.mark.serving, pytest.mark.slow]

TIMEOUT_S = 120.0
APIS = pytest.mark.parametrize("api", ["grpc", "rest"])
CONFIG = """model_config_list { config {
  name: "half" base_path: "%s" model_platform: "tensorflow"
  model_version_policy { specific { versions: 1 versions: 2 } }
  version_labels { key: "stable" value: 1 } version_labels { key: "canary" value: 2 }
} }
"""


class Served:
    """A server of half: y = x / 2 + version, versions 1 (stable) and 2 (canary)."""

    def __init__(self, folder: Path, ports: tuple[int, int]) -> None:
        self.folder, self.ports = folder, ports
        self.server: ServerProcess | None = None

    def address(self, api: str) -> str:
        return f"127.0.0.1:{self.ports[api == 'rest']}"

    def start(self) -> None:
        options = ServeOptions(
            model_config_file=self.folder / "models.config",
            port=self.ports[0],
            rest_api_port=self.ports[1],
            flags={"allow_version_labels_for_unavailable_models": True},
        )
        self.server = start(serve_command(options, backend="embedded"), log_path=self.folder / "log")

    def wait(self) -> None:
        wait_until_available("127.0.0.1", self.ports[1], model_name="half", timeout_s=TIMEOUT_S, server=self.server)

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()


def prepared(folder: Path, half_plus: Callable[[int], Path], ports: tuple[int, int]) -> Served:
    for version in (1, 2):
        shutil.copytree(half_plus(version), folder / "store" / str(version))
    (folder / "models.config").write_text(CONFIG % (folder / "store"), encoding="utf-8")
    return Served(folder, ports)


@pytest.fixture(scope="module")
def served(half_plus: Callable[[int], Path], tmp_path_factory: Any) -> Iterator[Served]:
    import socket

    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        ports = one.getsockname()[1], other.getsockname()[1]
    found = prepared(tmp_path_factory.mktemp("served"), half_plus, ports)
    found.start()
    try:
        found.wait()
        yield found
    finally:
        found.stop()


@APIS
def test_versions_labels_and_outputs_are_selected(served: Served, api: Any) -> None:
    with connect(served.address(api), api=api, timeout_s=TIMEOUT_S) as client:
        assert client.predict("half", [{"x": 4.0}])["y"].tolist() == [4.0]
        assert client.predict("half", [{"x": 4.0}], version=1)["y"].tolist() == [3.0]
        assert client.predict("half", [{"x": 4.0}], label="stable", outputs=["y"])["y"].tolist() == [3.0]
        answer = client.ask(Selected("half", None, "canary"), [{"x": 4.0}])
        assert answer.outputs["y"].tolist() == [4.0]
        assert answer.version == (2 if api == "grpc" else None)


@APIS
def test_mistakes_have_their_class(served: Served, api: Any) -> None:
    with connect(served.address(api), api=api, timeout_s=TIMEOUT_S) as client:
        with pytest.raises(NotFoundError, match="Specific"):
            client.predict("half", [{}], version=9)
        with pytest.raises(InvalidRequestError, match="Unrecognized servable version label"):
            client.predict("half", [{}], label="none")
        with pytest.raises(InvalidRequestError):
            client.predict("half", [{}], outputs=["z"])


@APIS
def test_asyncio_asks_many_at_once(served: Served, api: Any) -> None:
    async def ask() -> list[float]:
        async with connect_async(served.address(api), api=api, timeout_s=TIMEOUT_S) as client:
            answers = await asyncio.gather(*(client.predict("half", [{"x": float(k)}]) for k in range(40)))
            with pytest.raises(NotFoundError):
                await client.predict("none", [{}])
            return [float(answer["y"][0]) for answer in answers]

    assert asyncio.run(ask()) == [k / 2 + 2 for k in range(40)]


def test_an_answer_may_be_larger_than_four_mib(served: Served) -> None:
    with connect(served.address("grpc"), timeout_s=TIMEOUT_S) as client:
        rows = [{"x": 1.0}] * 1_300_000
        assert client.predict("half", rows)["y"].shape == (1_300_000,)


def test_requests_are_logged_with_the_version_that_answered(served: Served, tmp_path: Path) -> None:
    with (
        RequestLog(RequestLogSpec(dir=str(tmp_path))) as log,
        connect(served.address("grpc"), timeout_s=TIMEOUT_S, recorder=log) as client,
    ):
        client.predict("half", [{"x": 4.0}, {}], label="stable", request_id="r")
        client.predict("half", [{"x": 6.0}])
    (table,) = read_log(tmp_path)
    assert table["x"].to_pylist() == [4.0, None, 6.0]
    assert table["@version"].to_pylist() == [1, 1, 2]
    assert table["@request_id"].to_pylist() == ["r", "r", ""]
    scores = table["@score.y"].to_pylist()
    assert scores[0] == 3.0
    assert np.isnan(scores[1])
    assert scores[2] == 5.0


@APIS
def test_a_moderate_load_is_answered_without_an_error(served: Served, api: Any) -> None:
    rows = [{"x": float(k)} for k in range(20)]
    address = served.address(api)
    target, bodies = load_requests(address, rows, selected=Selected("half", None, "stable"), api=api, batch=4)
    assert len(bodies) == 5
    found = run_load(target, bodies, qps=30, duration_s=3, timeout_s=TIMEOUT_S)
    assert found.errors == {}
    assert found.num_ok == found.num_due
    assert found.latency_ms["p50"] <= found.latency_ms["p99"] <= found.latency_ms["max"]
    assert found.latency_ms["p50"] >= found.service_ms["p50"]


def test_a_load_on_what_is_not_served_counts_its_errors(served: Served) -> None:
    target, bodies = load_requests(served.address("grpc"), [{"x": 1.0}], selected=Selected("half"))
    wrong = [body.replace(b"half", b"hulf") for body in bodies]
    found = run_load(target, wrong, qps=20, duration_s=1, arrivals="uniform", timeout_s=TIMEOUT_S)
    assert found.errors == {"NOT_FOUND": 20}


@APIS
def test_a_client_waits_for_a_server_that_comes_up(
    half_plus: Callable[[int], Path], tmp_path: Path, free_port: Callable[[], int], api: Any
) -> None:
    late = prepared(tmp_path, half_plus, (free_port(), free_port()))
    starter = threading.Timer(0.5, late.start)
    starter.start()
    try:
        with connect(late.address(api), api=api, timeout_s=TIMEOUT_S, retries=1000) as client:
            assert client.predict("half", [{"x": 4.0}])["y"].tolist() == [4.0]
            late.stop()
            began = time.monotonic()
            with pytest.raises(UnavailableError):
                client.predict("half", [{"x": 4.0}], timeout_s=2)
            assert time.monotonic() - began < 30
    finally:
        starter.join()
        late.stop()
