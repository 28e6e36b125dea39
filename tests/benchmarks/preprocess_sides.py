"""The two sides of the preprocessing benchmark, each run as a process: `ours` and `rows`.

Both learn vocabularies (min count 5) and moments on the training split, split 80/10/10 by hash, and write
uncompressed TFRecords of tf.Example. CPU time counts from after the imports.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import print_result
from tests.benchmarks.wide_data import NUM_NUMBERS, NUM_STRINGS, wide_config

MIN_COUNT = 5


def ours(data: Path, folder: Path) -> dict[str, Any]:
    """Runs our two Beam jobs through the stages of the line."""
    import yaml

    from pipeline.config import load_config
    from pipeline.display import Display
    from pipeline.quiet import import_tensorflow, quiet_libraries

    quiet_libraries()
    import_tensorflow()
    import preprocessing.dataset_job
    import preprocessing.examples_job  # noqa: F401
    from pipeline.line import run_stages
    from preprocessing.dataset import open_dataset

    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(wide_config(data, folder / "work")), encoding="utf-8")
    config = load_config(path)
    start = time.process_time()
    made = run_stages(config, ("examples", "dataset"), display=Display())
    cpu_s = time.process_time() - start
    dataset = open_dataset(made["dataset"].folder)
    files = [str(dataset.folder / shard.records) for shards in dataset.splits.values() for shard in shards]
    return {
        "cpu_s": cpu_s,
        "files": files,
        "table_rows": sum(table.num_rows for table in dataset.schema.tables),
    }


def rows(data: Path, folder: Path) -> dict[str, Any]:
    """Runs the pipeline as it is commonly written: a row is a dict, a record a tf.train.Example."""
    import apache_beam as beam
    import tensorflow as tf  # noqa: F401

    from preprocessing.runner import local_pipeline

    start = time.process_time()
    stats = folder / "statistics"
    with local_pipeline(workers=1) as p:
        training = p | beam.io.ReadFromParquet(str(data)) | beam.Filter(lambda row: _split(row) == "train")
        counts = training | beam.FlatMap(_tokens) | beam.combiners.Count.PerElement()
        kept = counts | beam.Filter(lambda pair: pair[1] >= MIN_COUNT) | beam.Map(lambda pair: [*pair[0], pair[1]])
        moments = training | beam.FlatMap(_numbers) | beam.CombinePerKey(_Moments())
        _ = kept | beam.Map(repr) | "Vocabulary" >> beam.io.WriteToText(str(stats) + "-tokens", num_shards=1)
        _ = moments | beam.Map(repr) | "Moments" >> beam.io.WriteToText(str(stats) + "-moments", num_shards=1)
    vocabulary = _vocabulary(folder)
    scales = dict(_literals(folder, "statistics-moments*"))
    files = []
    with local_pipeline(workers=1) as p:
        table = p | beam.io.ReadFromParquet(str(data)) | beam.Map(lambda row: (_split(row), row))
        for split in ("train", "valid", "test"):
            name = str(folder / split)
            files.append(f"{name}-00000-of-00001.tfrecord")
            _ = (
                table
                | f"Only {split}" >> beam.Filter(lambda pair, split=split: pair[0] == split)
                | f"Encode {split}" >> beam.Map(lambda pair: _example(pair[1], vocabulary, scales))
                | f"Write {split}" >> beam.io.WriteToTFRecord(name, file_name_suffix=".tfrecord", num_shards=1)
            )
    cpu_s = time.process_time() - start
    # Missing and out-of-vocabulary rows of each table, as in ours.
    return {"cpu_s": cpu_s, "files": files, "table_rows": len(vocabulary) + 2 * NUM_STRINGS}


def _split(row: dict[str, Any]) -> str:
    import hashlib

    place = int.from_bytes(hashlib.md5(str(row["row"]).encode(), usedforsecurity=False).digest()[:8], "big") / 2**64
    return "train" if place < 0.8 else "valid" if place < 0.9 else "test"


def _tokens(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(f"s{i}", row[f"s{i}"]) for i in range(NUM_STRINGS)]


def _numbers(row: dict[str, Any]) -> list[tuple[str, float]]:
    import math

    values = ((f"n{i}", row[f"n{i}"]) for i in range(NUM_NUMBERS))
    return [(name, math.log1p(value)) for name, value in values if value is not None]


class _Moments:
    """Mean and deviation as a Beam combine function; a plain class is wrapped on use."""

    def __new__(cls) -> Any:
        import apache_beam as beam

        class Moments(beam.CombineFn):
            def create_accumulator(self) -> tuple[float, float, float]:
                return 0.0, 0.0, 0.0

            def add_input(self, state: tuple[float, float, float], value: float) -> tuple[float, float, float]:
                return state[0] + 1, state[1] + value, state[2] + value * value

            def merge_accumulators(self, states: Any) -> tuple[float, float, float]:
                n, s, q = zip(*states, strict=True)
                return sum(n), sum(s), sum(q)

            def extract_output(self, state: tuple[float, float, float]) -> tuple[float, float]:
                mean = state[1] / state[0]
                return mean, max(state[2] / state[0] - mean * mean, 1e-12) ** 0.5

        return Moments()


def _literals(folder: Path, pattern: str) -> list[Any]:
    import ast

    return [ast.literal_eval(line) for path in folder.glob(pattern) for line in path.read_text().splitlines()]


def _vocabulary(folder: Path) -> dict[tuple[str, str], int]:
    found = sorted(_literals(folder, "statistics-tokens*"), key=lambda entry: (entry[0], -entry[2], entry[1]))
    ids: dict[tuple[str, str], int] = {}
    taken: dict[str, int] = {}
    for column, token, _ in found:
        taken[column] = taken.get(column, 1) + 1
        ids[column, token] = taken[column]
    return ids


def _example(row: dict[str, Any], vocabulary: dict[tuple[str, str], int], scales: dict[str, Any]) -> bytes:
    import math

    import tensorflow as tf

    features = {}
    for i in range(NUM_STRINGS):
        name = f"s{i}"
        value = vocabulary.get((name, row[name]), 1)
        features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    for i in range(NUM_NUMBERS):
        name = f"n{i}"
        mean, deviation = scales[name]
        value = row[name]
        scaled = 0.0 if value is None else (math.log1p(value) - mean) / deviation
        features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=[scaled]))
        missing = float(value is None)
        features[f"{name}:missing"] = tf.train.Feature(float_list=tf.train.FloatList(value=[missing]))
    features["label"] = tf.train.Feature(float_list=tf.train.FloatList(value=[float(row["label"])]))
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


if __name__ == "__main__":
    side, data_path, work = sys.argv[1:]
    print_result({"ours": ours, "rows": rows}[side](Path(data_path), Path(work)))
