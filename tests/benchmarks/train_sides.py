"""The sides of the training benchmark, each run as a process over the same records: one epoch, batch 4096.

    ours-deepfm, ours-wide_deep         the project's trainer
    plain-deepfm, plain-wide_deep       tf_keras as it is commonly written: an Embedding for each field, Adam, model.fit
    deepctr-deepfm, deepctr-wide_deep   the same fit of DeepCTR's models, its regularisation off
    mlp                                 the dense layers alone, on vectors of the same width: the floor

`-mixed_bfloat16` after a side of ours or the floor sets its precision. FuxiCTR is in `train_torch_side`. CPU time and
wall time count from the end of the first steps (tracing, start-up) to the last step of the epoch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import preprocessing  # noqa: F401  selects Keras 2

BATCH = 4096
WIDTH = 16
HIDDEN = (400, 400, 400)
WARM_STEPS = 16
STEPS_PER_EXECUTION = 16
SEED = 1


class Clock:
    """CPU and wall time of the rows between the first and the last step seen."""

    def __init__(self) -> None:
        self.marks: list[tuple[int, float, float]] = []

    def step(self, step: int) -> None:
        """Notes that `step` steps are done."""
        self.marks.append((step, time.process_time(), time.perf_counter()))

    def result(self) -> dict[str, float]:
        """Returns rates of the steps after the first `WARM_STEPS`."""
        first = next(mark for mark in self.marks if mark[0] >= WARM_STEPS)
        last = self.marks[-1]
        num_rows = (last[0] - first[0]) * BATCH
        return {
            "rows": num_rows,
            "rows_per_cpu_s": num_rows / (last[1] - first[1]),
            "rows_per_s": num_rows / (last[2] - first[2]),
        }


def ours(kind: str, data: Path, folder: Path, precision: str) -> dict[str, Any]:
    """Trains by the project's trainer; tables by Adam on the rows looked up, as the peer's rate."""
    from models.config import ModelSpec, OptimizerSpec, OptimizersSpec
    from pipeline.train_events import Stepped, TrainEvent
    from pipeline.train_spec import StrategySpec, TensorBoardSpec, TrainSpec
    from pipeline.trainer import train
    from preprocessing.dataset import open_dataset

    clock = Clock()

    def observe(event: TrainEvent) -> None:
        if isinstance(event, Stepped):
            clock.step(event.step)

    result = train(
        open_dataset(data),
        model=ModelSpec.model_validate(
            {"kind": kind, "embedding_dim": WIDTH, "hidden_units": HIDDEN, "precision": precision}
        ),
        train=TrainSpec(
            batch_size=BATCH,
            epochs=1,
            optimizers=OptimizersSpec(
                tables=OptimizerSpec(kind="adam", learning_rate=0.001),
                dense=OptimizerSpec(kind="adam", learning_rate=0.001),
            ),
            tensorboard=TensorBoardSpec(enabled=False),
        ),
        strategy=StrategySpec(),
        seed=SEED,
        folder=folder / kind,
        observe=observe,
    )
    return {**clock.result(), "test_auc": result.metrics["test"]["auc"]}


def plain(kind: str, data: Path) -> dict[str, Any]:
    """Trains a model written with plain layers by `model.fit`."""
    import tf_keras as keras

    from preprocessing.dataset import open_dataset

    keras.utils.set_random_seed(SEED)
    schema = open_dataset(data).schema
    rows = {table.name: table.num_rows for table in schema.tables}
    model = plain_model(kind, [rows[field.table] for field in schema.id_fields], len(schema.dense))
    return _fit(keras, model, data, lambda batch: {"ids": batch["ids"], "dense": batch["dense"]})


def plain_model(kind: str, rows: Sequence[int], num_numbers: int) -> Any:
    """Returns the model, with a table of so many rows for each field."""
    import tensorflow as tf
    import tf_keras as keras

    ids = keras.Input([len(rows)], dtype=tf.int64, name="categories")
    dense = keras.Input([num_numbers], name="numbers")
    vectors = [keras.layers.Embedding(size, WIDTH)(ids[:, place]) for place, size in enumerate(rows)]
    weights = [keras.layers.Embedding(size, 1)(ids[:, place]) for place, size in enumerate(rows)]
    stacked = tf.stack(vectors, axis=1)
    hidden = keras.layers.Concatenate()([keras.layers.Flatten()(stacked), dense])
    logit = tf.add_n(weights) + keras.layers.Dense(1)(dense) + _mlp(keras, hidden)
    if kind == "deepfm":
        squares = tf.reduce_sum(tf.reduce_sum(stacked, 1) ** 2 - tf.reduce_sum(stacked**2, 1), 1, keepdims=True)
        logit += 0.5 * squares
    return keras.Model({"ids": ids, "dense": dense}, logit)


def deepctr(kind: str, data: Path) -> dict[str, Any]:
    """Trains DeepCTR's model by `model.fit`."""
    import tf_keras as keras
    from deepctr.feature_column import DenseFeat, SparseFeat
    from deepctr.models import WDL, DeepFM

    from preprocessing.dataset import open_dataset

    keras.utils.set_random_seed(SEED)
    schema = open_dataset(data).schema
    rows = {table.name: table.num_rows for table in schema.tables}
    fields, numbers = [field.name for field in schema.id_fields], list(schema.dense)
    columns = [SparseFeat(f.name, rows[f.table], embedding_dim=WIDTH, dtype="int64") for f in schema.id_fields]
    columns += [DenseFeat(name, 1) for name in numbers]
    build = {"deepfm": DeepFM, "wide_deep": WDL}[kind]
    model = build(columns, columns, dnn_hidden_units=HIDDEN, l2_reg_linear=0, l2_reg_embedding=0)

    def inputs(batch: dict[str, Any]) -> dict[str, Any]:
        by_field = {name: batch["ids"][:, place] for place, name in enumerate(fields)}
        return by_field | {name: batch["dense"][:, place : place + 1] for place, name in enumerate(numbers)}

    return _fit(keras, model, data, inputs, from_logits=False)


def mlp(precision: str, data: Path) -> dict[str, Any]:
    """Trains the dense layers alone: their input is made of the ids by arithmetic, without a table."""
    import tensorflow as tf
    import tf_keras as keras

    from preprocessing.dataset import open_dataset

    keras.utils.set_random_seed(SEED)
    keras.mixed_precision.set_global_policy(precision)
    schema = open_dataset(data).schema
    inputs = keras.Input([len(schema.id_fields) * WIDTH + len(schema.dense)], name="x")
    model = keras.Model(inputs, _mlp(keras, inputs))

    def vectors(batch: dict[str, Any]) -> Any:
        scaled = tf.repeat(tf.cast(batch["ids"] % 100, tf.float32) * 0.01, WIDTH, axis=1)
        return tf.concat([scaled, batch["dense"]], axis=1)

    return _fit(keras, model, data, vectors)


def _mlp(keras: Any, hidden: Any) -> Any:
    for units in HIDDEN:
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
    return keras.layers.Dense(1, dtype="float32")(hidden)


def _fit(
    keras: Any, model: Any, data: Path, inputs: Callable[[Any], Any], *, from_logits: bool = True
) -> dict[str, Any]:
    """Fits one epoch over the records, and scores the test split."""
    import numpy as np

    from pipeline.metrics import auc
    from preprocessing.dataset import open_dataset

    clock = Clock()
    loss = keras.losses.BinaryCrossentropy(from_logits=from_logits)
    model.compile(optimizer=keras.optimizers.Adam(0.001), loss=loss, steps_per_execution=STEPS_PER_EXECUTION)
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: clock.step(step + 1))
    train = batches(data, "train").map(lambda x: (inputs(x), x["labels"]))
    steps = -(-open_dataset(data).num_rows("train") // BATCH)
    model.fit(train, epochs=1, steps_per_epoch=steps, verbose=0, callbacks=[count])
    test = batches(data, "test")
    test_steps = -(-open_dataset(data).num_rows("test") // BATCH)
    outputs = model.predict(test.map(inputs), steps=test_steps, verbose=0)[:, 0].astype(np.float64)
    scores = 1 / (1 + np.exp(-outputs)) if from_logits else outputs
    labels = np.concatenate([batch["labels"][:, 0] for batch in test.as_numpy_iterator()])
    return {**clock.result(), "test_auc": auc(labels, scores)}


def batches(data: Path, split: str) -> Any:
    """Reads records the way TensorFlow's guide says: shuffle, batch, parse the batch, prefetch."""
    import tensorflow as tf

    from preprocessing.dataset import open_dataset
    from preprocessing.examples import feature_spec

    dataset = open_dataset(data)
    records = tf.data.TFRecordDataset([str(data / shard.records) for shard in dataset.splits[split]])
    if split == "train":
        records = records.shuffle(65536, seed=SEED)
    spec = feature_spec(dataset.schema)
    parsed = records.batch(BATCH).map(lambda x: tf.io.parse_example(x, spec), num_parallel_calls=tf.data.AUTOTUNE)
    return parsed.prefetch(tf.data.AUTOTUNE)


def main() -> None:
    """Runs the side named by the first argument and prints its figures."""
    from tests.benchmarks.measure import print_result

    side, data, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    name, _, rest = side.partition("-")
    if name == "ours":
        kind, _, precision = rest.partition("-")
        result = ours(kind, data, folder, precision or "float32")
    elif name == "mlp":
        result = mlp(rest or "float32", data)
    else:
        result = {"plain": plain, "deepctr": deepctr}[name](rest, data)
    print_result(result)


if __name__ == "__main__":
    main()
