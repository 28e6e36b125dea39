"""A tiny dataset with a rule to find, written as plain `tf.train.Example` records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

from preprocessing.dataset import Dataset, Shard
from preprocessing.schema import DatasetSchema, IdField, ListField, TableSchema

NUM_IDS = 20

SCHEMA = DatasetSchema(
    raw_columns=(),
    id_fields=(IdField(name="user", table="user"), IdField(name="item", table="item")),
    list_fields=(ListField(name="tags", table="item", length=3, pooling="mean"),),
    dense=("price",),
    tables=(TableSchema(name="user", num_rows=NUM_IDS), TableSchema(name="item", num_rows=NUM_IDS)),
    labels=("click",),
)


def record(*, ids: list[int], tags: list[int], dense: float, label: float, weight: float = 1.0) -> bytes:
    features = {
        "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=ids)),
        "list/tags": tf.train.Feature(int64_list=tf.train.Int64List(value=tags)),
        "dense": tf.train.Feature(float_list=tf.train.FloatList(value=[dense])),
        "labels": tf.train.Feature(float_list=tf.train.FloatList(value=[label])),
        "weight": tf.train.Feature(float_list=tf.train.FloatList(value=[weight])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def write_shard(folder: Path, name: str, records: list[bytes]) -> Shard:
    folder.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(folder / f"{name}.tfrecord")) as writer:
        for content in records:
            writer.write(content)
    return Shard(period="2026-11-01", records=f"{name}.tfrecord", rows=f"{name}.parquet", num_rows=len(records))


def planted_records(count: int, *, seed: int, label: float | None = None) -> list[bytes]:
    """Returns rows whose label is 1 with probability 0.95 or 0.05, by the item: odd or even."""
    random = np.random.default_rng(seed)
    records = []
    for _ in range(count):
        user, item = (int(value) for value in random.integers(1, NUM_IDS, 2))
        positive = (item % 2 == 0) == (random.random() < 0.95)
        records.append(
            record(
                ids=[user, item],
                tags=[item, 0, 0],
                dense=float(random.normal()),
                label=float(positive) if label is None else label,
            )
        )
    return records


def planted_dataset(folder: Path, *, rows: dict[str, list[int]], label: float | None = None) -> Dataset:
    """Returns a dataset whose splits have shards of these numbers of rows."""
    splits = {
        split: tuple(
            write_shard(
                folder,
                f"{split}-{index}",
                planted_records(count, seed=1000 * index + len(split), label=label if split == "train" else None),
            )
            for index, count in enumerate(counts)
        )
        for split, counts in rows.items()
    }
    return Dataset(folder=folder, schema=SCHEMA, splits=splits)


def numbered_dataset(folder: Path, counts: list[int]) -> Dataset:
    """Returns a dataset whose rows carry their number, from 1, as `dense` and have weight 1."""
    shards, start = [], 1
    for index, count in enumerate(counts):
        rows = [
            record(ids=[number % NUM_IDS, 1], tags=[2, 3, 0], dense=float(number), label=float(number % 2))
            for number in range(start, start + count)
        ]
        shards.append(write_shard(folder, f"numbered-{index}", rows))
        start += count
    return Dataset(folder=folder, schema=SCHEMA, splits={"train": tuple(shards)})


def open_planted(folder: Path, *, rows: dict[str, list[int]]) -> Dataset:
    """Returns what `planted_dataset` wrote with these rows, without writing it again."""
    splits = {
        split: tuple(
            Shard(
                period="2026-11-01",
                records=f"{split}-{index}.tfrecord",
                rows=f"{split}-{index}.parquet",
                num_rows=count,
            )
            for index, count in enumerate(counts)
        )
        for split, counts in rows.items()
    }
    return Dataset(folder=folder, schema=SCHEMA, splits=splits)
