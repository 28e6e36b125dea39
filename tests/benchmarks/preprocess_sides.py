"""The sides of the preprocessing benchmark, each run as a process: `ours`, `rows`, `polars` and `duckdb`.

All learn vocabularies (min count 5) and moments on the training split, split 80/10/10 by hash, and write uncompressed
TFRecords of tf.Example; polars and DuckDB write Parquet instead, since they have no encoder for them. CPU time counts
from after the imports.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import preprocessing  # noqa: F401  selects Keras 2
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
    import preprocessing.days_job  # noqa: F401
    from pipeline import stages
    from pipeline.report_stage import report_data
    from preprocessing.dataset import open_dataset

    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(wide_config(data, folder / "work")), encoding="utf-8")
    config, display = load_config(path), Display()
    start = time.process_time()
    inputs = stages.find_inputs(config)
    examples = stages.make("examples", config, inputs, display=display)
    made = stages.make("dataset", config, inputs, display=display)
    cpu_s = time.process_time() - start
    peak_rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    start = time.process_time()
    report_data(config, examples, display=display)
    dataset = open_dataset(made.folder)
    files = [str(dataset.folder / shard.records) for shards in dataset.splits.values() for shard in shards]
    return {
        "cpu_s": cpu_s,
        "peak_rss_mb_without_report": peak_rss_mb,
        "report_cpu_s": time.process_time() - start,  # the peers look at no column twice
        "files": files,
        "table_rows": sum(table.num_rows for table in dataset.schema.tables),
    }


def polars(data: Path, folder: Path) -> dict[str, Any]:
    """Runs the same job as a polars user would write it, into a Parquet file for each split."""
    import polars as pl

    start = time.process_time()
    place = pl.col("row").hash(seed=1) % 10
    frame = pl.read_parquet(data).with_columns(place.alias("place"))
    train = frame.filter(pl.col("place") < 8)
    columns, table_rows = [pl.col("label").cast(pl.Float32)], 0
    for i in range(NUM_STRINGS):
        name = f"s{i}"
        kept = train[name].value_counts(name="n").filter(pl.col("n") >= MIN_COUNT)
        kept = kept.filter(pl.col(name).is_not_null()).sort(["n", name], descending=[True, False])
        words = kept[name]
        ids = pl.Series(range(2, len(words) + 2), dtype=pl.Int64)
        known = pl.col(name).replace_strict(words, ids, default=1, return_dtype=pl.Int64)
        columns.append(pl.when(pl.col(name).is_null()).then(0).otherwise(known).alias(name))
        table_rows += len(words) + 2
    for i in range(NUM_NUMBERS):
        name = f"n{i}"
        logs = train[name].log1p()
        scaled = (pl.col(name).log1p() - logs.mean()) / logs.std(ddof=0)
        columns.append(scaled.fill_null(0.0).cast(pl.Float32).alias(name))
        columns.append(pl.col(name).is_null().cast(pl.Float32).alias(f"{name}_missing"))
    encoded = frame.select("place", *columns)
    files = []
    for split, chosen in _PLACES.items():
        files.append(str(folder / f"{split}.parquet"))
        encoded.filter(pl.col("place").is_in(chosen)).drop("place").write_parquet(files[-1], compression="uncompressed")
    return {"cpu_s": time.process_time() - start, "files": files, "table_rows": table_rows}


_PLACES = {"train": list(range(8)), "valid": [8], "test": [9]}


def duckdb(data: Path, folder: Path) -> dict[str, Any]:
    """Runs the same job as SQL, into a Parquet file for each split."""
    import duckdb as duck

    start = time.process_time()
    base = duck.connect()
    base.execute(f"create table log as select *, hash(row) % 10 as place from read_parquet('{data}')")
    columns, joins, table_rows = ["label::float as label"], [], 0
    for i in range(NUM_STRINGS):
        base.execute(
            f"create table v{i} as select s{i} as token, 1 + row_number() over (order by count(*) desc, s{i}) as id "
            f"from log where place < 8 and s{i} is not null group by s{i} having count(*) >= {MIN_COUNT}"
        )
        joins.append(f"left join v{i} on log.s{i} = v{i}.token")
        columns.append(f"case when log.s{i} is null then 0 else coalesce(v{i}.id, 1) end as s{i}")
        (count,) = base.execute(f"select count(*) from v{i}").fetchall()[0]
        table_rows += count + 2
    for i in range(NUM_NUMBERS):
        mean, deviation = base.execute(
            f"select avg(ln(1 + n{i})), stddev_pop(ln(1 + n{i})) from log where place < 8"
        ).fetchall()[0]
        columns.append(f"coalesce((ln(1 + n{i}) - {mean!r}) / {deviation!r}, 0)::float as n{i}")
        columns.append(f"(n{i} is null)::float as n{i}_missing")
    base.execute(f"create table encoded as select place, {', '.join(columns)} from log {' '.join(joins)}")
    files = []
    for split, chosen in _PLACES.items():
        files.append(str(folder / f"{split}.parquet"))
        wanted = ", ".join(map(str, chosen))
        base.execute(
            f"copy (select * exclude (place) from encoded where place in ({wanted})) to '{files[-1]}' "
            "(format parquet, compression uncompressed)"
        )
    return {"cpu_s": time.process_time() - start, "files": files, "table_rows": table_rows}


def rows(data: Path, folder: Path) -> dict[str, Any]:
    """Runs the pipeline as it is commonly written: a row is a dict, a record a tf.train.Example.

    The analysis is one combiner that counts in place, which is several times faster than an element for each value.
    """
    import apache_beam as beam
    import tensorflow as tf  # noqa: F401

    from preprocessing.runner import local_pipeline

    start = time.process_time()
    with local_pipeline(workers=1) as p:
        training = p | beam.io.ReadFromParquet(str(data)) | beam.Filter(lambda row: _split(row) == "train")
        found = training | beam.CombineGlobally(_analysis())
        _ = found | beam.Map(_write_analysis, str(folder / "analysis.json"))
    vocabulary, scales = _read_analysis(folder / "analysis.json")
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
    return {"cpu_s": cpu_s, "files": files, "table_rows": sum(map(len, vocabulary.values())) + 2 * NUM_STRINGS}


def _split(row: dict[str, Any]) -> str:
    import hashlib

    place = int.from_bytes(hashlib.md5(str(row["row"]).encode(), usedforsecurity=False).digest()[:8], "big") / 2**64
    return "train" if place < 0.8 else "valid" if place < 0.9 else "test"


def _analysis() -> Any:
    """Returns the combiner: counts of each column's tokens, and count, sum and sum of squares of each number."""
    import math

    import apache_beam as beam

    class Analysis(beam.CombineFn):
        def create_accumulator(self) -> tuple[list[Counter[str]], list[list[float]]]:
            return [Counter() for _ in range(NUM_STRINGS)], [[0.0, 0.0, 0.0] for _ in range(NUM_NUMBERS)]

        def add_input(self, state: Any, row: dict[str, Any]) -> Any:
            for i, counts in enumerate(state[0]):
                counts[row[f"s{i}"]] += 1
            for i, moments in enumerate(state[1]):
                value = row[f"n{i}"]
                if value is not None:
                    value = math.log1p(value)
                    moments[0] += 1
                    moments[1] += value
                    moments[2] += value * value
            return state

        def merge_accumulators(self, states: Any) -> Any:
            merged = self.create_accumulator()
            for tokens, numbers in states:
                for into, counts in zip(merged[0], tokens, strict=True):
                    into.update(counts)
                for sums, moments in zip(merged[1], numbers, strict=True):
                    for place, value in enumerate(moments):
                        sums[place] += value
            return merged

        def extract_output(self, state: Any) -> Any:
            kept = [[[token, n] for token, n in counts.items() if n >= MIN_COUNT] for counts in state[0]]
            return kept, state[1]

    return Analysis()


def _write_analysis(found: Any, path: str) -> None:
    Path(path).write_text(json.dumps(found), encoding="utf-8")


def _read_analysis(path: Path) -> tuple[dict[str, dict[str, int]], dict[str, tuple[float, float]]]:
    tokens, numbers = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = {
        f"s{i}": {token: place + 2 for place, (token, _) in enumerate(sorted(kept, key=lambda one: (-one[1], one[0])))}
        for i, kept in enumerate(tokens)
    }
    scales = {}
    for i, (count, total, squares) in enumerate(numbers):
        mean = total / count
        scales[f"n{i}"] = (mean, max(squares / count - mean * mean, 1e-12) ** 0.5)
    return vocabulary, scales


def _example(row: dict[str, Any], vocabulary: dict[str, dict[str, int]], scales: dict[str, Any]) -> bytes:
    import math

    import tensorflow as tf

    features = {}
    for i in range(NUM_STRINGS):
        name = f"s{i}"
        value = vocabulary[name].get(row[name], 1)
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
    sides = {"ours": ours, "rows": rows, "polars": polars, "duckdb": duckdb}
    print_result(sides[side](Path(data_path), Path(work)))
