"""What `rankmill plan` predicts of a step, against what is measured here: bytes held, bytes sent, time.

python -m tests.benchmarks.cost_model [--rows 100000 1000000] [--batch 2048 8192] [--steps 5] [--repeats 3]

Two processes with a replica each, DeepFM of 26 ids x 16 and 13 numbers, MLP 400-400-400, Adagrad. Both first measure
the rates that the model asks for, at the same time, since they share the machine: dense layers forward and backward,
rows gathered and scattered, a large reduction, a small one. Bytes sent are what the kernel counted on the sockets of
worker 0 (`ss`; left out without it): messages of gRPC with all their padding and headers. The model's are an upper
bound, because how many rows of a batch are distinct follows from the data.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

from tests.benchmarks.measure import machine
from tests.benchmarks.sharded import PLACEMENTS, Side, launched, two_replicas

REDUCED = 1 << 22  # numbers of the large reduction: 16 MB


def main() -> None:
    """Prints predictions and measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--batch", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--timeout-s", type=float, default=1800.0)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        print(json.dumps(measured(arguments)))
        return
    command = ["--steps", str(arguments.steps), "--repeats", str(arguments.repeats)]
    command += ["--rows", *map(str, arguments.rows), "--batch", *map(str, arguments.batch)]
    found = launched("tests.benchmarks.cost_model", command, processes=2, timeout_s=arguments.timeout_s)
    print(json.dumps({"machine": machine(), **found}, indent=2))


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the rates of this worker, and each case beside its prediction."""
    strategy = two_replicas(2)
    cases = []
    for rows in arguments.rows:
        for batch in arguments.batch:
            for placement in PLACEMENTS:
                one = argparse.Namespace(rows=[rows], batch=batch, settings={})
                side = Side(one, placement, strategy)
                rates = rates_here(side.model, batch // 2, strategy, repeats=arguments.repeats)
                before = bytes_sent()
                for _ in range(arguments.repeats):
                    side.repeat(arguments.steps)
                after, steps = bytes_sent(), arguments.steps * arguments.repeats
                sent = None if before is None or after is None else (after - before) / steps
                cases.append(
                    {"rows": rows, "batch": batch, "placement": placement, **compared(side, rates, batch, sent)}
                )
    return {"cases": cases}


def compared(side: Side, rates: Any, batch: int, sent: float | None) -> dict[str, Any]:
    """Returns predictions and measurements of one case."""
    from models.config import OptimizersSpec
    from pipeline.cost_model import memory_of, step_cost

    model = side.model
    plan, schema = model.tables.plan, model.schema
    cost = step_cost(plan, schema, model.spec, global_batch=batch, rates=rates)
    memory = memory_of(plan, schema, model.spec, optimizers=OptimizersSpec(), global_batch=batch)
    step = statistics.median(side.seconds)
    predicted = cost.exchange_bytes + cost.reduction_bytes
    held = max(side.bytes_held())
    if memory.tables != held:
        raise RuntimeError(f"a replica holds {held} bytes of tables, not the {memory.tables} of the plan")
    return {
        "bytes_held": {"predicted": memory.tables, "measured": held},
        "bytes_sent": {"predicted_at_most": predicted, "measured": sent, "ratio": sent and predicted / sent},
        "step_ms": {"predicted": 1e3 * cost.total_s, "measured": 1e3 * step, "ratio": cost.total_s / step},
        "parts_ms": {
            name: 1e3 * getattr(cost, f"{name}_s") for name in ("compute", "rows", "exchange", "reduction", "latency")
        },
        "rates_measured": {
            "gflops": rates.flops / 1e9,
            "memory_gb_s": rates.memory / 1e9,
            "net_gb_s": rates.bandwidth / 1e9,
        },
    }


def rates_here(model: Any, batch: int, strategy: Any, *, repeats: int) -> Any:
    """Returns what this replica can do while the other does the same."""
    import tensorflow as tf

    from pipeline.cost_model import Rates, dense_weights

    widths = [26 * 16 + 13, *model.spec.hidden_units, 1]
    kernels = [tf.Variable(tf.random.normal(pair)) for pair in itertools.pairwise(widths)]
    inputs = tf.random.normal([batch, widths[0]])

    @tf.function(autograph=False)
    def dense() -> Any:
        with tf.GradientTape() as tape:
            hidden = inputs
            for kernel in kernels:
                hidden = tf.nn.relu(hidden @ kernel)
            loss = tf.reduce_sum(hidden)
        return tf.add_n([tf.reduce_sum(one) for one in tape.gradient(loss, kernels)])

    table = tf.Variable(tf.zeros([2_000_000, 16]))
    places = tf.random.shuffle(tf.range(2_000_000))[: 1 << 17]

    @tf.function(autograph=False)
    def rows() -> None:
        table.scatter_update(tf.IndexedSlices(tf.gather(table, places) + 1.0, places))

    large, small = tf.zeros([REDUCED]), tf.zeros([1])

    @tf.function(autograph=False)
    def reduced(value: Any) -> Any:
        return strategy.run(lambda one: model.replicas.all_sum([one])[0], args=(value,))

    large_s, small_s = _seconds(lambda: reduced(large), repeats), _seconds(lambda: reduced(small), repeats)
    return Rates(
        flops=6 * batch * dense_weights(model.schema, model.spec) / _seconds(dense, repeats),
        memory=2 * (1 << 17) * 16 * 4 / _seconds(rows, repeats),
        bandwidth=REDUCED * 4 / max(large_s - small_s, 1e-6),  # a ring of two sends its whole length once
        latency_s=small_s,
    )


def _seconds(work: Callable[[], Any], repeats: int) -> float:
    """Returns the median time, the first call apart."""
    work()
    times = []
    for _ in range(max(3, repeats)):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def bytes_sent() -> int | None:
    """Returns the bytes that this process sent over TCP connections that are still open."""
    if shutil.which("ss") is None:
        return None
    done = subprocess.run(["ss", "-tinpH"], capture_output=True, text=True, check=False)
    joined = re.sub(r"\n\s+", " ", done.stdout)
    mine = [line for line in joined.splitlines() if f"pid={os.getpid()}," in line]
    return sum(int(found[1]) for line in mine if (found := re.search(r"bytes_sent:(\d+)", line)))


if __name__ == "__main__":
    main()
