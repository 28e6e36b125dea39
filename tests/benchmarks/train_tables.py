"""The step's time by the size of the tables: ours against plain tf_keras, whose optimizer passes over whole tables.

python -m tests.benchmarks.train_tables [--rows 164000 5000000 20000000] [--steps 10] [--repeats 3] [--plain-rows ...]

DeepFM of 26 ids x 16 and 13 numbers, MLP 400-400-400, batch 4096, Adam, one process, batches in memory. Ids are drawn
by rank (Zipf-like) and ranks lie scattered over each table, as hashed ids do. Rows are of all 26 tables together. All
sizes of ours are in memory at once and take turns, so that each repeat gives ratios of its own; then the peer's, one
after another.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import preprocessing  # noqa: F401  selects Keras 2
from tests.benchmarks.measure import machine, spread

FIELDS, NUMBERS, WIDTH, HIDDEN, BATCH = 26, 13, 16, (400, 400, 400), 4096
NUM_BATCHES = 4
SCATTER = 2_654_435_761  # a prime above any table's rows: rank * SCATTER mod rows visits each row once

Step = Callable[[int], None]


def main() -> None:
    """Prints the comparison as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[164_000, 5_000_000, 20_000_000])
    parser.add_argument("--plain-rows", type=int, nargs="*", default=[164_000, 5_000_000, 20_000_000])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tables", choices=["adagrad", "adam"], default="adam")
    arguments = parser.parse_args()
    ours = {rows: our_step(rows, arguments.tables) for rows in arguments.rows}
    found = in_turn(ours, steps=arguments.steps, repeats=arguments.repeats)
    del ours
    plain: dict[int, list[float]] = {}
    for rows in arguments.plain_rows:
        gc.collect()
        plain |= in_turn({rows: plain_step(rows)}, steps=max(2, arguments.steps // 4), repeats=arguments.repeats)
    print(json.dumps({"machine": machine(), "cpu_ms_per_step": figures(found, plain)}, indent=2))


def in_turn(sides: dict[int, Step], *, steps: int, repeats: int) -> dict[int, list[float]]:
    """Returns the CPU milliseconds of a step, for each repeat of each side."""
    found: dict[int, list[float]] = {rows: [] for rows in sides}
    for step in sides.values():
        for number in range(2):
            step(number)
    for _ in range(repeats):
        for rows, step in sides.items():
            started = time.process_time()
            for number in range(steps):
                step(number)
            found[rows].append(1000 * (time.process_time() - started) / steps)
            print(rows, round(found[rows][-1], 1), file=sys.stderr, flush=True)
    return found


def figures(ours: dict[int, list[float]], plain: dict[int, list[float]]) -> dict[str, Any]:
    """Returns the time of each size, and each to the smallest of its side."""
    result: dict[str, Any] = {}
    for name, found in (("ours", ours), ("plain", plain)):
        smallest = found.get(min(found, default=0), [])
        for rows, times in found.items():
            ratios = [a / b for a, b in zip(times, smallest, strict=True)]
            result[f"{name} {rows}"] = {"cpu_ms": spread(times), "to_smallest": spread(ratios)}
    return result


def batches(rows: int) -> list[dict[str, Any]]:
    """Returns batches whose ids fall off as 1 / rank."""
    import numpy as np
    import tensorflow as tf

    of_table = rows // FIELDS
    found = []
    for number in range(NUM_BATCHES):
        random = np.random.default_rng(number)
        rank = np.floor(of_table ** random.uniform(size=(BATCH, FIELDS))).astype(np.int64)
        found.append(
            {
                "ids": tf.constant(rank * SCATTER % of_table),
                "dense": tf.constant(random.normal(size=(BATCH, NUMBERS)).astype(np.float32)),
                "labels": tf.constant((rank[:, :1] % 2).astype(np.float32)),
                "weight": tf.ones((BATCH, 1)),
            }
        )
    return found


def our_step(rows: int, tables: str) -> Step:
    """Returns what trains our model on batch number n."""
    import tensorflow as tf

    from models.build import build_model
    from models.config import ModelSpec, OptimizerSpec, OptimizersSpec
    from preprocessing.schema import DatasetSchema, IdField, TableSchema

    names = [f"c{i}" for i in range(FIELDS)]
    schema = DatasetSchema(
        raw_columns=(),
        id_fields=tuple(IdField(name=name, table=name) for name in names),
        tables=tuple(TableSchema(name=name, num_rows=rows // FIELDS) for name in names),
        dense=tuple(f"n{i}" for i in range(NUMBERS)),
        labels=("click",),
    )
    spec = ModelSpec(kind="deepfm", embedding_dim=WIDTH, hidden_units=HIDDEN)
    optimizers = OptimizersSpec(tables=OptimizerSpec(kind=tables, learning_rate=0.001))
    model = build_model(schema, spec, optimizers=optimizers, seed=1)
    data, scale = batches(rows), tf.constant(1.0)

    @tf.function(autograph=False)
    def run(batch: Any, number: Any) -> Any:
        return model.train_step(batch, step=number, learning_rate_scale=scale)["loss"]

    return lambda number: float(run(data[number % NUM_BATCHES], tf.constant(number, tf.int64)))  # type: ignore[return-value]


def plain_step(rows: int) -> Step:
    """Returns what trains plain tf_keras on batch number n."""
    import tensorflow as tf
    import tf_keras as keras

    from tests.benchmarks.train_sides import plain_model

    keras.utils.set_random_seed(1)
    model = plain_model("deepfm", [rows // FIELDS] * FIELDS, NUMBERS)
    model.compile(optimizer=keras.optimizers.Adam(0.001), loss=keras.losses.BinaryCrossentropy(from_logits=True))
    data = [({"ids": batch["ids"], "dense": batch["dense"]}, batch["labels"]) for batch in batches(rows)]

    @tf.function(autograph=False)
    def run(inputs: Any, labels: Any) -> Any:
        return model.train_step((inputs, labels))["loss"]

    return lambda number: float(run(*data[number % NUM_BATCHES]))  # type: ignore[return-value]


if __name__ == "__main__":
    main()
