"""The sides of the serving benchmark: the model it serves, the model alone, servers that answer a constant.

python -m tests.benchmarks.serving_sides save FOLDER | alone FOLDER SIGNATURE | constant PORT ANSWER_FILE [FOLDER]
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.measure import print_result

NUM_STRINGS, NUM_FLOATS = 26, 13
_BUCKETS, _WIDTH = 20_000, 16
PREDICT = "/tensorflow.serving.PredictionService/Predict"


def rows(signature: str, num_rows: int) -> dict[str, NDArray[Any]]:
    """Returns inputs of a signature: "packed" has two, "named" one a column."""
    rng = np.random.default_rng(5)
    numbers = rng.integers(0, 100_000, (num_rows, NUM_STRINGS))
    strings = np.array([[b"v%d" % number for number in row] for row in numbers.tolist()], object)
    floats = rng.random((num_rows, NUM_FLOATS), np.float32)
    if signature == "packed":
        return {"strings": strings, "floats": floats}
    named = {f"s{column:02d}": strings[:, column] for column in range(NUM_STRINGS)}
    return named | {f"f{column:02d}": floats[:, column] for column in range(NUM_FLOATS)}


def save(folder: Path) -> None:
    """Saves a DeepFM-like model: hashed strings, width 16, FM + linear + MLP 256-128-64 beside 13 floats."""
    import tensorflow as tf

    module = tf.Module()
    tf.random.set_seed(1)
    sizes = [NUM_STRINGS * _WIDTH + NUM_FLOATS, 256, 128, 64, 1]
    module.table = tf.Variable(tf.random.normal([NUM_STRINGS * _BUCKETS, _WIDTH], stddev=0.05))
    module.first = tf.Variable(tf.random.normal([NUM_STRINGS * _BUCKETS], stddev=0.05))
    module.layers = [tf.Variable(tf.random.normal([a, b], stddev=a**-0.5)) for a, b in itertools.pairwise(sizes)]

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, NUM_STRINGS], tf.string, name="strings"),
            tf.TensorSpec([None, NUM_FLOATS], tf.float32, name="floats"),
        ]
    )
    def packed(strings: Any, floats: Any) -> dict[str, Any]:
        ids = tf.strings.to_hash_bucket_fast(strings, _BUCKETS) + tf.range(NUM_STRINGS, dtype=tf.int64) * _BUCKETS
        wide = tf.gather(module.table, ids)
        pairs = tf.square(tf.reduce_sum(wide, 1)) - tf.reduce_sum(tf.square(wide), 1)
        deep = tf.concat([tf.reshape(wide, [-1, NUM_STRINGS * _WIDTH]), floats], 1)
        for layer in module.layers[:-1]:
            deep = tf.nn.relu(deep @ layer)
        logits = 0.5 * tf.reduce_sum(pairs, 1) + tf.reduce_sum(tf.gather(module.first, ids), 1)
        return {"score": tf.sigmoid(logits + (deep @ module.layers[-1])[:, 0])}

    @tf.function
    def named(**columns: Any) -> Any:
        strings = [columns[f"s{column:02d}"] for column in range(NUM_STRINGS)]
        floats = [columns[f"f{column:02d}"] for column in range(NUM_FLOATS)]
        return packed(tf.stack(strings, 1), tf.stack(floats, 1))

    kinds = {name: array.dtype for name, array in rows("named", 1).items()}
    specs = {
        name: tf.TensorSpec([None], tf.string if kind.kind == "O" else kind, name=name) for name, kind in kinds.items()
    }
    module.packed, module.named = packed, named
    signatures = {"packed": packed, "named": named.get_concrete_function(**specs)}
    tf.saved_model.save(module, str(folder / "1"), signatures=signatures)


def alone(folder: Path, signature: str) -> None:
    """Prints the CPU microseconds of one call of the model at batch 1, without a server."""
    call, times = bare_model(folder, signature), []
    for _ in range(5):
        start_s = time.process_time()
        for _ in range(1000):
            call()
        times.append((time.process_time() - start_s) * 1e3)
    print_result({"cpu_us": sorted(times)[2], "score": float(call()[0][0])})


def bare_model(folder: Path, signature: str) -> Callable[[], Any]:
    """Returns what runs the model on one row: the bare callable, with nothing of the server's own around it."""
    from serving.server.flags import Flags
    from serving.server.servable import Servable
    from serving.server.session_options import session_config

    servable = Servable.load(folder / "1", session_config=session_config(Flags()))
    found = servable.signature(signature)
    feeds, fetches = found.bind(rows(signature, 1)), list(found.output_tensors.values())
    servable.run_tensors(feeds, fetches)
    (call,) = servable._callables.values()
    return functools.partial(call, *feeds.values())


def constant(port: int, answer_file: Path, folder: Path | None = None) -> None:
    """Answers every Predict by the bytes of a file, until it is killed; with `folder` it runs the model meanwhile."""
    import grpc

    answer = answer_file.read_bytes()
    model = bare_model(folder, "packed") if folder else lambda: None

    def handle(_request: bytes, _context: Any) -> bytes:
        model()
        return answer

    method = grpc.unary_unary_rpc_method_handler(handle)
    server = grpc.server(ThreadPoolExecutor(8))
    service, name = PREDICT[1:].split("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    if sys.argv[1] == "save":
        save(Path(sys.argv[2]))
    elif sys.argv[1] == "alone":
        alone(Path(sys.argv[2]), sys.argv[3])
    else:
        constant(int(sys.argv[2]), Path(sys.argv[3]), *map(Path, sys.argv[4:]))
