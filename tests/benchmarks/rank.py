"""One user and 500 candidates through the embedded server over gRPC: `rank` against `serving_default` and `packed`.

    python -m tests.benchmarks.rank [--candidates 500] [--rounds 40] [--history] [--every 4]

A table of 26 string columns and 13 numbers; every 4th (`--every`) is the candidate's, the others are the user's.
Requests of all three forms are asked in turn by one client of one server, so load on the machine meets all alike; a
request is built from arrays, sent, and its answer read. Also measured: the model alone, without any server.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import serving  # noqa: F401  selects Keras 2 before TensorFlow Serving's protos import TensorFlow

# isort: split
import grpc
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import TypeAdapter
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from models.config import ModelSpec
from preprocessing.raw_values import raw_tensors
from preprocessing.spec import FeatureSpec
from serving.export import export_model
from serving.server.servable import Servable
from serving.server.tensors import from_proto, to_proto
from serving.signatures import packed_layout
from tests.benchmarks.measure import machine, spread
from tests.serving.exported import ranked, write_checkpoint, write_dataset

NUM_STRINGS, NUM_NUMBERS = 26, 13
HISTORY_LENGTH = 20
SPEC = ModelSpec(kind="deepfm", embedding_dim=16, hidden_units=(256, 128, 64))
_START_S = 120.0

Arrays = dict[str, NDArray[Any]]


def features(*, history: bool) -> tuple[FeatureSpec, ...]:
    """Returns hashed strings and plain numbers, as in the Criteo logs."""
    strings = [{"kind": "hashed", "name": f"s{i}", "buckets": 20_000} for i in range(NUM_STRINGS)]
    numbers = [{"kind": "numeric", "name": f"n{i}", "log1p": True} for i in range(NUM_NUMBERS)]
    past = [{"kind": "multivalued", "name": "past", "max_length": HISTORY_LENGTH}] if history else []
    return tuple(TypeAdapter(FeatureSpec).validate_python(feature) for feature in [*strings, *numbers, *past])


def rows(count: int, *, history: bool) -> pa.Table:
    """Returns rows with 8-character strings."""
    random = np.random.default_rng(1)
    strings = {f"s{i}": [f"{n:08x}" for n in random.integers(0, 2**32, count)] for i in range(NUM_STRINGS)}
    table = pa.table(strings | {f"n{i}": random.lognormal(size=count) for i in range(NUM_NUMBERS)})
    past = [[f"i{n}" for n in random.integers(0, 5000, HISTORY_LENGTH)] for _ in range(count)]
    return table.append_column("past", pa.array(past)) if history else table


def item_columns(every: int) -> frozenset[str]:
    """Returns every so-manieth column."""
    strings = {f"s{i}" for i in range(0, NUM_STRINGS, every)}
    return frozenset(strings | {f"n{i}" for i in range(0, NUM_NUMBERS, every)})


@contextlib.contextmanager
def server(base_path: Path) -> Iterator[Any]:
    """Runs the embedded server, and yields a stub of it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = [f"--port={port}", "--model_name=m", f"--model_base_path={base_path}"]
    flags += ["--tensorflow_intra_op_parallelism=1", "--tensorflow_inter_op_parallelism=1"]
    process = subprocess.Popen([sys.executable, "-m", "serving.server", *flags], stderr=subprocess.DEVNULL)
    try:
        channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_http_proxy", 0)])
        grpc.channel_ready_future(channel).result(timeout=_START_S)
        yield prediction_service_pb2_grpc.PredictionServiceStub(channel), process.pid
        channel.close()
    finally:
        process.terminate()
        process.wait(timeout=30)


def cpu_s(pid: int) -> float:
    """Returns the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(stub: Any, signature: str, inputs: Arrays) -> Arrays:
    """Returns the answer to one request, built and read as a client does."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "m", signature
    for name, array in inputs.items():
        request.inputs[name].CopyFrom(to_proto(array))
    answer = stub.Predict(request, timeout=60)
    return {name: from_proto(proto, name=name) for name, proto in answer.outputs.items()}


def timed(call: Callable[[], object]) -> float:
    """Returns what a call takes, in ms."""
    start_s = time.perf_counter()
    call()
    return (time.perf_counter() - start_s) * 1000


def measured(calls: dict[str, Callable[[], object]], *, rounds: int) -> dict[str, dict[str, float]]:
    """Returns the ms of each call, all asked in turn in each round."""
    for _ in range(5):
        for call in calls.values():
            call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(timed(call))
    return {name: spread(values) for name, values in times.items()}


def requests(columns: Any, table: pa.Table, of_candidates: frozenset[str]) -> dict[str, Arrays]:
    """Returns the same pairs of one user and many candidates in each form."""
    whole = raw_tensors(table, columns)
    by_row = {name: v if name in of_candidates else np.repeat(v[:1], len(v), axis=0) for name, v in whole.items()}
    asked = {name: v[None] if name in of_candidates else v[:1] for name, v in whole.items()}
    return {"serving_default": by_row, "packed": packed_layout(columns).pack(by_row), "rank": asked}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--history", action="store_true", help="The user has a list of 20 items too.")
    parser.add_argument("--every", type=int, default=4, help="So-manieth columns are the candidate's.")
    options = parser.parse_args()
    of_candidates = item_columns(options.every)
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        table = rows(options.candidates, history=options.history)
        dataset = write_dataset(folder, table, features=features(history=options.history))
        checkpoint = write_checkpoint(folder / "checkpoint", dataset, SPEC, scale=0.05)
        export_options = ranked(features=features(history=options.history), item_columns=of_candidates, top_k=100)
        export_model(dataset, checkpoint, model=SPEC, folder=folder / "store" / "1", options=export_options)
        forms = requests(dataset.schema.raw_columns, table, of_candidates)
        servable = Servable.load(folder / "store" / "1")
        alone = measured({n: functools.partial(servable.run, n, v) for n, v in forms.items()}, rounds=options.rounds)
        with server(folder / "store") as (stub, pid):
            scores = {name: ask(stub, name, inputs)["click"].ravel() for name, inputs in forms.items()}
            difference = max(float(np.abs(scores[name] - scores["serving_default"]).max()) for name in forms)
            if difference > 1e-6 or not 0.01 < float(np.std(scores["rank"])) < 0.5:
                raise RuntimeError(f"scores differ by {difference}, their deviation is {np.std(scores['rank'])}")
            served = measured({n: functools.partial(ask, stub, n, v) for n, v in forms.items()}, rounds=options.rounds)
            server_cpu_ms = {}
            for name, inputs in forms.items():
                before = cpu_s(pid)
                for _ in range(options.rounds):
                    ask(stub, name, inputs)
                server_cpu_ms[name] = (cpu_s(pid) - before) * 1000 / options.rounds
    median = {name: figures["median"] for name, figures in served.items()}
    print(
        json.dumps(
            {
                "machine": machine(),
                "candidates": options.candidates,
                "history": options.history,
                "candidate_columns": len(of_candidates),
                "largest_difference": difference,
                "served_ms": served,
                "model_alone_ms": alone,
                "server_cpu_ms": server_cpu_ms,
                "default_over_rank": median["serving_default"] / median["rank"],
                "packed_over_rank": median["packed"] / median["rank"],
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
