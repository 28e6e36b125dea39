"""Swaps under load: answers at a given rate while versions are published, labelled and retired.

`python -m tests.benchmarks.swap --versions 20 --qps 200` prints failed requests, and p99 before, during and after.
Half of the requests ask for the label `stable`, half for no version.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import preprocessing  # noqa: F401  selects Keras 2 before TensorFlow is imported
from serving.deployment import ServerFiles, monitoring_text, production_flags
from serving.labels import promote
from serving.launch import ServeOptions, serve_command, start, wait_until_available
from serving.lifecycle import retire
from serving.loadtest import LoadResult, LoadTarget, run_load
from serving.rollout import Place
from serving.version_store import publish, versions
from tests.benchmarks.measure import machine

MODEL = "swapped"
NUM_COLUMNS, NUM_ROWS, WIDTH = 8, 50_000, 16


def save_model(folder: Path) -> Path:
    """Saves a model of string columns, an embedding table and three layers."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    module = tf.Module()
    module.table = tf.Variable(random.normal(size=(NUM_ROWS, WIDTH)).astype(np.float32))
    sizes = (NUM_COLUMNS * WIDTH, 128, 64, 1)
    module.layers = [
        tf.Variable(random.normal(scale=0.1, size=shape).astype(np.float32)) for shape in itertools.pairwise(sizes)
    ]

    def score(tokens: Any) -> Any:
        ids = tf.strings.to_hash_bucket_fast(tokens, NUM_ROWS)
        values = tf.reshape(tf.gather(module.table, ids), [-1, sizes[0]])
        for weights in module.layers:
            values = tf.nn.relu(values @ weights)
        return {"score": tf.squeeze(values, axis=1)}

    module.f = tf.function(score, input_signature=[tf.TensorSpec([None, NUM_COLUMNS], tf.string, name="tokens")])
    tf.saved_model.save(module, str(folder), signatures=module.f)
    return folder


def requests() -> list[bytes]:
    """Returns serialised requests, by label and without, of one row each."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    made = []
    for number in range(64):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = MODEL
        if number % 2:
            request.model_spec.version_label = "stable"
        tokens = [[f"token {number} {column}" for column in range(NUM_COLUMNS)]]
        request.inputs["tokens"].CopyFrom(tf.make_tensor_proto(tokens))
        made.append(request.SerializeToString())
    return made


def free_port() -> int:
    """Returns a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_seconds(pid: int) -> float:
    """Returns the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def swap(place: Place, export: Path, *, count: int) -> list[float]:
    """Publishes, labels and retires versions; every other one is a canary first. Returns the seconds of each."""
    seconds = []
    for number in range(count):
        start_s = time.monotonic()
        before = versions(place.store)[-1]
        version = publish(place.store, export, metadata={"export_key": str(number)}, why="swap")
        if number % 2:
            promote(place, version, "canary", why="swap")
        promote(place, version, why="swap")
        retire(place, before, why="swap")
        seconds.append(time.monotonic() - start_s)
    return seconds


def measure(root: Path, *, count: int, qps: float, quiet_s: float, timeout_s: float = 30.0) -> dict[str, Any]:
    """Returns failed requests by code, and latencies before, during and after `count` swaps."""
    export = save_model(root / "export")
    port, rest_port = free_port(), free_port()
    place = Place(root / "store" / MODEL, (f"127.0.0.1:{rest_port}",), poll_s=1.0)
    promote(place, publish(place.store, export, metadata={}), why="first")
    (root / "monitoring.config").write_text(monitoring_text(), encoding="utf-8")
    files = ServerFiles(models=root / "store" / "models.config", monitoring=root / "monitoring.config", batching=None)
    flags = production_flags(files, threads=1, poll_s=1)
    del flags["model_config_file"]
    options = ServeOptions(model_config_file=files.models, port=port, rest_api_port=rest_port, flags=flags)
    server = start(serve_command(options, backend="embedded"), log_path=root / "server.log")
    try:
        wait_until_available("127.0.0.1", rest_port, model_name=MODEL, timeout_s=120, server=server)
        target, bodies = LoadTarget(f"127.0.0.1:{port}"), requests()

        def load(duration_s: float, stopped: Callable[[], bool] = lambda: False) -> LoadResult:
            return run_load(
                target, bodies, qps=qps, duration_s=duration_s, timeout_s=timeout_s, stopped=stopped, processes=1
            )

        load(2.0)
        cpu_s = [cpu_seconds(server.process.pid)]
        before = load(quiet_s)
        cpu_s.append(cpu_seconds(server.process.pid))
        # A process of its own: what publishes shares no processor time with what counts, by more than the machine.
        arguments = ["--drive", str(place.store), str(export), place.servers[0], "--versions", str(count)]
        swapping = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.swap", *arguments], stdout=subprocess.PIPE, text=True
        )
        try:
            during = load(1200.0, lambda: swapping.poll() is not None)
            out, _ = swapping.communicate(timeout=60)
        finally:
            swapping.kill()
            swapping.wait()
        if swapping.returncode:
            raise RuntimeError(f"the publisher ended with code {swapping.returncode}")
        took = json.loads(out.splitlines()[-1])
        cpu_s.append(cpu_seconds(server.process.pid))
        after = load(quiet_s)
    finally:
        server.stop()
    phases = {"before": before, "during": during, "after": after}
    failed = {name: {code: n for code, n in r.errors.items() if code != "NOT_SENT"} for name, r in phases.items()}
    p99 = {name: result.latency_ms["p99"] for name, result in phases.items()}
    request_s = (cpu_s[1] - cpu_s[0]) / before.num_ok
    return {
        "server_cpu_ms_a_request": request_s * 1e3,
        "server_cpu_s_a_swap": (cpu_s[2] - cpu_s[1] - request_s * during.num_ok) / count,
        "versions": count,
        "left": versions(place.store),
        "qps": qps,
        "failed": failed,
        "answered": {name: result.num_ok for name, result in phases.items()},
        "p50_ms": {name: result.latency_ms["p50"] for name, result in phases.items()},
        "p99_ms": p99,
        "max_ms": {name: result.latency_ms["max"] for name, result in phases.items()},
        "p99_ms_from_sending": {name: result.service_ms["p99"] for name, result in phases.items()},
        "p99_during_to_before": p99["during"] / p99["before"],
        "client_is_late": {name: result.client_is_late for name, result in phases.items()},
        "seconds_a_swap": float(np.median(took)),
        "machine": machine(),
    }


def main() -> None:
    """Measures and prints JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", type=int, default=20)
    parser.add_argument("--qps", type=float, default=200.0)
    parser.add_argument("--quiet-seconds", type=float, default=20.0, help="Of load without swaps, before and after.")
    parser.add_argument("--drive", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.drive:
        store, export, server = arguments.drive
        took = swap(Place(Path(store), (server,), poll_s=1.0), Path(export), count=arguments.versions)
        print(json.dumps(took))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), count=arguments.versions, qps=arguments.qps, quiet_s=arguments.quiet_seconds)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
