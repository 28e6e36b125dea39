"""Sharded tables against mirrored ones: samples/s, CPU time a step and bytes, by the size of the tables.

python -m tests.benchmarks.sharded [--rows 100000 1000000] [--steps 20] [--repeats 3] [--processes 2] [--batch 4096]

DeepFM of 26 ids x 16, MLP 400-400-400, Adagrad, synthetic batches with ids drawn by rank (Zipf-like). With one process
there are two virtual CPU devices in it, with two each has one. Both placements train in turn in the same processes:
the ratios are of one run, the median step of each. Rows are of all 26 tables together.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from tests.benchmarks.measure import machine, spread

FIELDS = 26
PLACEMENTS = ("mirrored", "sharded")


def main() -> None:
    """Prints the comparison as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--processes", type=int, nargs="+", choices=[1, 2], default=[1, 2])
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON of model.embeddings, for both sides")
    parser.add_argument("--timeout-s", type=float, default=3600.0)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        print(json.dumps(measure(arguments)))
        return
    results = []
    for processes in arguments.processes:
        for rows in arguments.rows:
            results.append({"processes": processes, "rows": rows, **run(arguments, processes=processes, rows=rows)})
            print(json.dumps(results[-1]), file=sys.stderr, flush=True)  # kept, should a later case fail
    print(json.dumps({"machine": machine(), "batch": arguments.batch, "results": results}, indent=2))


def run(arguments: argparse.Namespace, *, processes: int, rows: int) -> dict[str, Any]:
    """Returns the figures of worker 0."""
    command = ["--rows", str(rows), "--steps", str(arguments.steps), "--repeats", str(arguments.repeats)]
    command += ["--batch", str(arguments.batch), "--processes", str(processes)]
    command += ["--settings", json.dumps(arguments.settings)]
    return launched("tests.benchmarks.sharded", command, processes=processes, timeout_s=arguments.timeout_s)


def launched(module: str, command: Sequence[str], *, processes: int, timeout_s: float) -> dict[str, Any]:
    """Runs a module as each worker of a local cluster, `--worker N` behind its arguments; returns worker 0's JSON."""
    ports = _free_ports(processes)
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    workers = []
    for index in range(processes):
        config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        environment = dict(os.environ) | ({"TF_CONFIG": json.dumps(config)} if processes > 1 else {})
        arguments = [sys.executable, "-m", module, *command, "--worker", str(index)]
        workers.append(subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True))
    try:
        outputs = [worker.communicate(timeout=timeout_s)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    if any(worker.returncode for worker in workers):
        raise RuntimeError(f"a worker failed: {[worker.returncode for worker in workers]}")
    return dict(json.loads(outputs[0].strip().splitlines()[-1]))


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def two_replicas(processes: int) -> Any:
    """Returns the strategy of two virtual CPU devices of this process, or of one in each of two."""
    import preprocessing  # noqa: F401  isort: skip  selects Keras 2
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * (3 - processes)
    tf.config.set_logical_device_configuration(cpu, devices)
    if processes == 2:
        return tf.distribute.MultiWorkerMirroredStrategy()
    reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=reduction)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns what each placement takes, in this worker."""
    strategy = two_replicas(arguments.processes[0])
    sides = {placement: Side(arguments, placement, strategy) for placement in PLACEMENTS}
    for _ in range(arguments.repeats):
        for side in sides.values():
            side.repeat(arguments.steps)
    figures: dict[str, Any] = {name: side.figures(arguments.batch) for name, side in sides.items()}
    for unit in ("seconds", "cpu_seconds"):
        pairs = zip(getattr(sides["sharded"], unit), getattr(sides["mirrored"], unit), strict=True)
        figures[f"sharded_to_mirrored_{unit}"] = spread([sharded / mirrored for sharded, mirrored in pairs])
    difference = max(abs(a - b) for a, b in zip(sides["sharded"].losses, sides["mirrored"].losses, strict=True))
    if difference > 1e-3:
        raise RuntimeError(f"the placements differ in their losses by {difference}")
    return figures


class Side:
    """One placement: its model, compiled, and the time of its steps."""

    def __init__(self, arguments: argparse.Namespace, placement: str, strategy: Any) -> None:
        import tensorflow as tf

        from models.build import build_model
        from models.config import ModelSpec, OptimizersSpec
        from models.plan_figures import bytes_sent_per_step

        spec = ModelSpec.model_validate({"embeddings": {**arguments.settings, "placement": placement}})
        self.model = build_model(
            schema_of(arguments.rows[0]), spec, optimizers=OptimizersSpec(), seed=1, strategy=strategy
        )
        self.planned_traffic = bytes_sent_per_step(self.model.tables.plan, global_batch=arguments.batch)
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []
        self.losses: list[float] = []
        self._batches = _batches(arguments.rows[0], arguments.batch, strategy)
        self._step = 0
        model = self.model

        @tf.function(autograph=False)
        def step(batch: Any, number: Any) -> Any:
            scale = tf.constant(1.0)
            shares = strategy.run(
                lambda one: model.train_step(one, step=number, learning_rate_scale=scale)["loss"], args=(batch,)
            )
            return strategy.reduce(tf.distribute.ReduceOp.SUM, shares, axis=None)

        self._run = step
        for _ in range(3):
            self._one()

    def _one(self) -> float:
        import tensorflow as tf

        batch = self._batches[self._step % len(self._batches)]
        loss = float(self._run(batch, tf.constant(self._step, tf.int64)))
        self._step += 1
        return loss

    def repeat(self, steps: int) -> None:
        """Runs steps and keeps the mean of their time."""
        started, cpu_started = time.perf_counter(), time.process_time()
        self.losses += [self._one() for _ in range(steps)]
        self.seconds.append((time.perf_counter() - started) / steps)
        self.cpu_seconds.append((time.process_time() - cpu_started) / steps)

    def bytes_held(self) -> list[int]:
        """Returns what each replica of this process holds of the tables, measured."""
        from models.tables import EmbeddingTables

        tables = self.model.tables
        if not isinstance(tables, EmbeddingTables):
            raise TypeError("replicas hold the tables in this benchmark")
        return tables.bytes_held()

    def figures(self, batch: int) -> dict[str, Any]:
        """Returns samples/s, CPU ms a step, and bytes."""
        return {
            "samples_per_s": spread([batch / seconds for seconds in self.seconds]),
            "cpu_ms_per_step": spread([1000 * seconds for seconds in self.cpu_seconds]),
            "bytes_per_replica": max(self.bytes_held()),
            "planned_bytes_sent_per_step_at_most": self.planned_traffic,
        }


def schema_of(rows: int) -> Any:
    from preprocessing.schema import DatasetSchema, IdField, TableSchema

    names = [f"c{i}" for i in range(FIELDS)]
    return DatasetSchema(
        raw_columns=(),
        id_fields=tuple(IdField(name=name, table=name) for name in names),
        tables=tuple(TableSchema(name=name, num_rows=max(2, rows // FIELDS)) for name in names),
        dense=tuple(f"n{i}" for i in range(13)),
        labels=("click",),
    )


def _batches(rows: int, batch: int, strategy: Any) -> list[Any]:
    """Returns batches whose ids fall off as 1 / rank: id = N^u for uniform u."""
    import numpy as np
    import tensorflow as tf

    size = batch // strategy.num_replicas_in_sync
    num_rows = max(2, rows // FIELDS)

    def share(number: int, replica: int) -> dict[str, Any]:
        random = np.random.default_rng([number, replica])
        ids = np.floor(num_rows ** random.uniform(size=(size, FIELDS))).astype(np.int64) % num_rows
        return {
            "ids": tf.constant(ids),
            "dense": tf.constant(random.normal(size=(size, 13)).astype(np.float32)),
            "labels": tf.constant((ids[:, :1] % 2).astype(np.float32)),
            "weight": tf.ones((size, 1)),
        }

    return [
        strategy.experimental_distribute_values_from_function(
            lambda context, number=number: share(number, int(context.replica_id_in_sync_group))
        )
        for number in range(4)
    ]


if __name__ == "__main__":
    main()
