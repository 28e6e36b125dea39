"""Server CPU of a Predict at batch 1, 8 callers: the embedded server against gRPC alone plus the model alone.

python -m tests.benchmarks.serving [--requests 4000] [--rounds 5]

`ratio_packed` is server / (constant-answer server + model), two inputs; `ratio_named` is 39 named inputs / packed.
`ratio_in_process` is packed / a constant-answer server that runs the model too: within a server, between requests on
several threads, the model finds its caches cold and costs more than in a loop of its own.
The servers are measured in turn, round by round: ratios are of one round, the median of all rounds is reported.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np

import serving  # noqa: F401  (before TensorFlow: it selects Keras 2)
from tests.benchmarks.measure import machine, run_side, spread
from tests.benchmarks.process_use import cpu_s
from tests.benchmarks.serving_sides import PREDICT, rows

_SIDES = "tests.benchmarks.serving_sides"
_CALLERS = 8


def main() -> None:
    """Prints the comparison as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", type=Path, help="A folder with the model of an earlier run.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.model or Path(temporary)
        if not (folder / "1").exists():
            subprocess.run([sys.executable, "-m", _SIDES, "save", str(folder)], check=True, capture_output=True)
        print(json.dumps(compare(folder, Path(temporary), arguments.requests, arguments.rounds), indent=2))


def compare(folder: Path, temporary: Path, num_requests: int, num_rounds: int) -> dict[str, Any]:
    """Returns CPU microseconds a request of each side, and the ratios."""
    from tensorflow_serving.apis import predict_pb2

    from serving.server.tensors import from_proto

    alone = {signature: run_side(_SIDES, "alone", str(folder), signature) for signature in ("packed", "named")}
    requests = {signature: _request(signature) for signature in alone}
    embedded, constant, both = _free_port(), _free_port(), _free_port()
    command = ["serving.server", f"--port={embedded}", "--model_name=m", f"--model_base_path={folder}"]
    found: dict[str, list[float]] = {"constant": [], "constant_and_model": [], "packed": [], "named": []}
    rates: dict[str, list[float]] = {name: [] for name in found}
    with _process(*command) as server, _caller(embedded) as call:
        for signature, request in requests.items():
            score = from_proto(predict_pb2.PredictResponse.FromString(call(request)).outputs["score"])
            np.testing.assert_allclose(score, [alone[signature]["score"]], rtol=1e-5)
        (temporary / "answer").write_bytes(call(requests["packed"]))
        answer = str(temporary / "answer")
        with (
            _process(_SIDES, "constant", str(constant), answer) as fake,
            _process(_SIDES, "constant", str(both), answer, str(folder)) as running,
            _caller(constant) as same,
            _caller(both) as same_running,
        ):
            sides = {
                "constant": (fake, same, requests["packed"]),
                "constant_and_model": (running, same_running, requests["packed"]),
                "packed": (server, call, requests["packed"]),
                "named": (server, call, requests["named"]),
            }
            for number in range(-1, num_rounds):
                for name, side in sides.items():
                    cpu_us, rate = _measure(*side, num_requests)
                    if number >= 0:
                        found[name].append(cpu_us)
                        rates[name].append(rate)
    model_us = alone["packed"]["cpu_us"]
    return {
        "machine": machine(),
        "callers": _CALLERS,
        "server_cpu_us": {name: spread(values) for name, values in found.items()},
        "requests_per_s": {name: statistics.median(values) for name, values in rates.items()},
        "model_alone_cpu_us": {name: side["cpu_us"] for name, side in alone.items()},
        "ratio_packed": spread([p / (c + model_us) for p, c in zip(found["packed"], found["constant"], strict=True)]),
        "ratio_in_process": spread([p / c for p, c in zip(found["packed"], found["constant_and_model"], strict=True)]),
        "ratio_named": spread([n / p for n, p in zip(found["named"], found["packed"], strict=True)]),
    }


def _request(signature: str) -> bytes:
    from tensorflow_serving.apis import predict_pb2

    from serving.server.tensors import to_proto

    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "m", signature
    for name, array in rows(signature, 1).items():
        request.inputs[name].CopyFrom(to_proto(array))
    return request.SerializeToString()


def _measure(
    process: subprocess.Popen[bytes], call: Callable[[bytes], bytes], request: bytes, num_requests: int
) -> tuple[float, float]:
    """Returns CPU microseconds of the process a request, and requests a second."""

    def work(_caller: int) -> None:
        for _ in range(num_requests // _CALLERS):
            call(request)

    used_s, start_s = cpu_s(process.pid), time.perf_counter()
    with ThreadPoolExecutor(_CALLERS) as pool:
        list(pool.map(work, range(_CALLERS)))
    used_s, end_s = cpu_s(process.pid) - used_s, time.perf_counter()
    return used_s / num_requests * 1e6, num_requests / (end_s - start_s)


@contextlib.contextmanager
def _process(module: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _caller(port: int) -> Iterator[Callable[[bytes], bytes]]:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        grpc.channel_ready_future(channel).result(timeout=120)
        yield channel.unary_unary(PREDICT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
