"""Rows per CPU-second into uncompressed TFRecords: our encoder against `tf.train.Example` row by row.

python -m tests.benchmarks.encoder [--rows 200000] [--peer-rows 10000] [--repeats 3]

40 values a row: 26 ids of tables with 10 to 200,000 rows, 13 numbers, a label. Once in the packed layout of our
datasets (`ids`, `dense`, `labels`), once with a key for each value. Both sides write the same messages, which is
checked.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import preprocessing  # noqa: F401  selects Keras 2
from preprocessing.record_bytes import encode_rows
from preprocessing.record_layout import RecordLayout, record_layout
from tests.benchmarks.measure import machine, spread

NUM_IDS = 26
NUM_NUMBERS = 13
BLOCK_ROWS = 8192
Columns = Mapping[str, np.ndarray]


def packed(num_rows: int) -> tuple[RecordLayout, Columns, Columns]:
    """Returns layout, float columns and integer columns of a packed record."""
    rng = np.random.default_rng(1)
    sizes = [int(size) for size in np.round(np.geomspace(10, 200_000, NUM_IDS))]
    # Columns lie together in memory, as the transform leaves them.
    ids = np.asfortranarray(np.stack([rng.zipf(1.3, num_rows) % size for size in sizes], axis=1))
    dense = np.asfortranarray(rng.normal(size=(num_rows, NUM_NUMBERS)).astype(np.float32))
    labels = rng.integers(0, 2, (num_rows, 1)).astype(np.float32)
    layout = record_layout({"dense": NUM_NUMBERS, "labels": 1}, {"ids": [size - 1 for size in sizes]})
    return layout, {"dense": dense, "labels": labels}, {"ids": ids}


def separate(num_rows: int) -> tuple[RecordLayout, Columns, Columns]:
    """Returns the same values with a key for each."""
    _, floats, ints = packed(num_rows)
    numbers = {f"n{i}": floats["dense"][:, i : i + 1] for i in range(NUM_NUMBERS)}
    ids = {f"s{i}": ints["ids"][:, i : i + 1] for i in range(NUM_IDS)}
    limits = np.round(np.geomspace(10, 200_000, NUM_IDS)).astype(int) - 1
    layout = record_layout(
        dict.fromkeys((*numbers, "label"), 1), {name: [int(limits[i])] for i, name in enumerate(ids)}
    )
    return layout, {**numbers, "label": floats["labels"]}, ids


def vectorised(layout: RecordLayout, floats: Columns, ints: Columns, path: Path) -> None:
    """Writes all rows by our encoder."""
    num_rows = len(next(iter(floats.values())))
    with path.open("wb") as file:
        for start in range(0, num_rows, BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            part = [{key: values[rows] for key, values in side.items()} for side in (floats, ints)]
            file.write(encode_rows(layout, part[0], part[1]).data)


def row_by_row(_: RecordLayout, floats: Columns, ints: Columns, path: Path) -> None:
    """Writes all rows as message objects, as TensorFlow's guide does."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in range(len(next(iter(floats.values())))):
            features = {
                key: tf.train.Feature(float_list=tf.train.FloatList(value=values[row]))
                for key, values in floats.items()
            }
            for key, values in ints.items():
                features[key] = tf.train.Feature(int64_list=tf.train.Int64List(value=values[row]))
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def cpu_s(write: Callable[..., None], *arguments: Any) -> float:
    """Returns the CPU time of one call."""
    start = time.process_time()
    write(*arguments)
    return time.process_time() - start


def check_equal(paths: list[Path], num_rows: int) -> None:
    """Both files must hold the same messages in their first rows."""
    import tensorflow as tf

    records = [[one.numpy() for one in tf.data.TFRecordDataset(str(path)).take(num_rows)] for path in paths]
    for first, second in zip(*records, strict=True):
        if tf.train.Example.FromString(first) != tf.train.Example.FromString(second):
            raise RuntimeError("the two encoders wrote different messages")


def compare(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns rates and their ratio for both layouts."""
    result: dict[str, Any] = {"machine": machine(), "rows": arguments.rows, "peer_rows": arguments.peer_rows}
    for name, make in (("packed", packed), ("separate", separate)):
        data, few = make(arguments.rows), make(arguments.peer_rows)
        rates: dict[str, list[float]] = {"ours": [], "tf_train_example": []}
        for _ in range(arguments.repeats):
            rates["ours"].append(arguments.rows / cpu_s(vectorised, *data, folder / "ours"))
            rates["tf_train_example"].append(arguments.peer_rows / cpu_s(row_by_row, *few, folder / "rows"))
        vectorised(*few, folder / "few")
        check_equal([folder / "few", folder / "rows"], 100)
        ratios = [a / b for a, b in zip(rates["ours"], rates["tf_train_example"], strict=True)]
        result[name] = {
            "rows_per_cpu_s": {side: spread(values) for side, values in rates.items()},
            "ours_to_tf_train_example": spread(ratios),
            "bytes_a_row": {
                "ours": (folder / "ours").stat().st_size / arguments.rows,
                "tf_train_example": (folder / "rows").stat().st_size / arguments.peer_rows,
            },
        }
    return result


def main() -> None:
    """Prints the comparison as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--peer-rows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(compare(Path(folder), arguments), indent=2))


if __name__ == "__main__":
    main()
