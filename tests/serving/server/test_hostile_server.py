"""A real server under hostile clients: it answers the honest ones all the while, and no error is its own."""

import contextlib
import json
import random
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from serving.launch import ServeOptions, serve_command, start, wait_until_available
from tests.benchmarks.process_use import cpu_s, rss_bytes

pytestmark = pytest.mark.serving
_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_START_S = 150
_GOOD = b'{"instances": [2.0]}'


class _Running:
    def __init__(self, server: Any, port: int, rest_port: int) -> None:
        self.server, self.port, self.rest_port = server, port, rest_port
        self.url = f"http://127.0.0.1:{rest_port}/v1/models/half:predict"

    def check(self) -> None:
        answer = httpx.post(self.url, content=_GOOD, timeout=15, trust_env=False)
        assert answer.json() == {"predictions": [3.0]}

    def memory(self) -> int:
        return rss_bytes(self.server.process.pid)


@pytest.fixture(scope="module")
def half(half_plus: Any, tmp_path_factory: Any) -> Any:
    root = tmp_path_factory.mktemp("hostile")
    shutil.copytree(half_plus(2), root / "half" / "1")
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    options = ServeOptions("half", root / "half", None, port=ports[0], rest_api_port=ports[1], flags={})
    server = start(serve_command(options, backend="embedded"), log_path=root / "server.log")
    try:
        wait_until_available("127.0.0.1", ports[1], model_name="half", timeout_s=_START_S, server=server)
        yield _Running(server, *ports)
    finally:
        server.stop()


def _connections(stack: contextlib.ExitStack, port: int, count: int) -> list[socket.socket]:
    return [
        stack.enter_context(contextlib.closing(socket.create_connection(("127.0.0.1", port), 10))) for _ in range(count)
    ]


def test_a_thousand_idle_connections_do_not_keep_others_out(half: Any) -> None:
    with contextlib.ExitStack() as stack:
        _connections(stack, half.rest_port, 1000)
        _connections(stack, half.port, 200)
        half.check()
    half.check()


def test_slow_clients_do_not_keep_others_out(half: Any) -> None:
    head = b"POST /v1/models/half:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
    with contextlib.ExitStack() as stack:
        slow = _connections(stack, half.rest_port, 200)
        for position, connection in enumerate(slow):
            # Half of them never end their headers, half never end their body.
            connection.sendall(head if position % 2 else head + b"\r\n{")
        for _ in range(5):
            for connection in slow:
                connection.sendall(b"x" if connection else b"")
            half.check()


def test_a_body_said_to_be_too_large_is_refused_unread(half: Any) -> None:
    with socket.create_connection(("127.0.0.1", half.rest_port), 10) as connection:
        connection.settimeout(20)
        connection.sendall(b"POST /v1/models/half:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{")
        assert connection.recv(4096).startswith(b"HTTP/1.1 400")
    half.check()


@pytest.mark.parametrize(
    "target",
    [
        "/v1/models/../../etc/passwd",
        "/v1/models/%2e%2e",
        "/v1/models/%00",
        "/../v1/models/half",
        "/v1/models/" + "x" * 200_000,
    ],
)
def test_urls_that_play_tricks_are_refused(half: Any, target: str) -> None:
    with socket.create_connection(("127.0.0.1", half.rest_port), 10) as connection:
        connection.settimeout(20)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            assert connection.recv(4096)[:12] in {b"HTTP/1.1 400", b"HTTP/1.1 404"}
    half.check()


def test_nesting_without_end_is_refused(half: Any) -> None:
    body = b'{"instances": ' + b"[" * 500_000 + b"1" + b"]" * 500_000 + b"}"
    assert httpx.post(half.url, content=body, timeout=30, trust_env=False).status_code == 400
    half.check()


def test_random_bytes_on_both_ports_are_the_clients_mistake(half: Any) -> None:
    chance = random.Random(3)
    half.check()
    before = half.memory()
    with (
        httpx.Client(timeout=15, trust_env=False) as client,
        grpc.insecure_channel(f"127.0.0.1:{half.port}") as channel,
    ):
        call = channel.unary_unary(_PREDICT)
        for _ in range(400):
            body = bytearray(_GOOD + chance.randbytes(chance.randrange(4)))
            for _ in range(chance.randrange(4)):
                body[chance.randrange(len(body))] = chance.randrange(256)
            answer = client.post(half.url, content=bytes(body))
            assert answer.status_code in {200, 400}
            assert answer.status_code == 200 or json.loads(answer.content)["error"]
            with pytest.raises(grpc.RpcError) as caught:
                call(b"\x0a\x06\x0a\x04half" + chance.randbytes(chance.randrange(60)), timeout=15)
            assert caught.value.code().name in {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION"}
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", chance.choice([half.port, half.rest_port])), 10) as connection:
            connection.sendall(chance.randbytes(200))
    half.check()
    assert half.memory() - before < 40 * 2**20


def test_several_servers_share_a_port_when_told_to(half_plus: Any, tmp_path: Path, free_port: Any) -> None:
    shutil.copytree(half_plus(2), tmp_path / "half" / "1")
    port, rest_port = free_port(), free_port()
    options = ServeOptions(
        "half", tmp_path / "half", None, port=port, rest_api_port=rest_port, flags={"reuse_port": True}
    )
    command = serve_command(options, backend="embedded")
    with contextlib.ExitStack() as stack:
        servers = []
        for name in ("one", "two"):
            server = start(command, log_path=tmp_path / f"{name}.log")
            stack.callback(server.stop)
            wait_until_available("127.0.0.1", rest_port, model_name="half", timeout_s=_START_S, server=server)
            deadline_s = time.monotonic() + _START_S
            while "HTTP/REST API at" not in (tmp_path / f"{name}.log").read_text():
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
            servers.append(server)
        before = [cpu_s(server.process.pid) for server in servers]
        url = f"http://127.0.0.1:{rest_port}/v1/models/half:predict"
        for _ in range(300):
            assert httpx.post(url, content=_GOOD, timeout=15, trust_env=False).json() == {"predictions": [3.0]}
        used = [cpu_s(s.process.pid) - b for s, b in zip(servers, before, strict=True)]
        assert min(used) > 0.1
        servers[0].stop()
        for _ in range(20):
            assert httpx.post(url, content=_GOOD, timeout=15, trust_env=False).json() == {"predictions": [3.0]}
