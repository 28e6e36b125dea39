"""`rankmill show`: one record of a dataset, decoded, with the raw values of the same row beside it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.artefacts import open_artefact
from pipeline.config import Config
from preprocessing.dataset import Dataset, Shard, open_dataset
from preprocessing.errors import ArtefactError, ConfigError, CorruptError
from preprocessing.examples import Encoded, feature_spec
from preprocessing.explain import Meanings, load_meanings
from preprocessing.manifest import exists, read_manifest
from preprocessing.negative_sampling import kept_rows
from preprocessing.schema import DENSE_KEY, IDS_KEY, LABELS_KEY, LIST_PREFIX, WEIGHT_KEY, DatasetSchema
from preprocessing.spec import SPLITS

__all__ = ["Field", "Shown", "dataset_of", "fields_of", "plain", "show_file", "show_record"]


@dataclasses.dataclass(frozen=True)
class Field:
    """One feature of a record.

    Attributes:
        name: of the feature.
        kind: of the feature; of an indicator of missing values, "indicator".
        table: embedding table; None of a dense input.
        value: an id, a list of ids without padding, or a number.
        meaning: what it stands for.
        raw: the values of the columns it is made from; None if unknown.
    """

    name: str
    kind: str
    table: str | None
    value: int | float | list[int]
    meaning: str
    raw: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class Shown:
    """A record: where it is, its features, labels and weight."""

    where: str
    fields: tuple[Field, ...]
    labels: dict[str, float]
    weight: float


def dataset_of(config: Config) -> Dataset:
    """Returns the dataset of a config, as its files are now.

    Raises:
        ArtefactError: if preprocess has not been run.
    """
    from pipeline import stages

    return open_dataset(open_artefact(stages.plan("dataset", config, stages.find_inputs(config))).folder)


def show_record(dataset: Dataset, *, split: str, row: int) -> Shown:
    """Returns a record of a split, counted from 0 over its files.

    Raises:
        ConfigError: if there is no such split or row.
    """
    if split not in dataset.splits:
        raise ConfigError(f"--split {split}: the dataset has {', '.join(sorted(dataset.splits, key=SPLITS.index))}")
    num_rows = dataset.num_rows(split)
    if not 0 <= row < num_rows:
        last = f"they are 0 to {num_rows - 1}" if num_rows else "it is empty"
        raise ConfigError(f"--row {row}: split {split!r} has {num_rows} records; {last}")
    for shard in dataset.splits[split]:
        if row < shard.num_rows:
            return _shown(dataset, split, shard, row)
        row -= shard.num_rows
    raise ArtefactError(f"{dataset.folder}: row counts do not add up; run preprocess again")


def show_file(path: Path, *, row: int) -> Shown:
    """Returns a record of a file of a dataset, counted from 0.

    Raises:
        ConfigError: if the file is none of a dataset, or has no such row.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    folder = path.resolve().parent.parent
    if not exists(folder):
        raise ConfigError(f"{path}: belongs to no finished dataset; give DATASET/SPLIT/FILE.tfrecord")
    dataset = open_dataset(folder)
    for split, shards in dataset.splits.items():
        for shard in shards:
            if (folder / shard.records).resolve() == path.resolve():
                if not 0 <= row < shard.num_rows:
                    raise ConfigError(f"--row {row}: {path} has {shard.num_rows} records, 0 to {shard.num_rows - 1}")
                return _shown(dataset, split, shard, row)
    raise ConfigError(f"{path}: the dataset in {folder} does not list it")


def _shown(dataset: Dataset, split: str, shard: Shard, row: int) -> Shown:
    path = dataset.folder / shard.records
    encoded = _read(path, dataset.schema, row)
    raw = _raw_row(dataset, split, shard, row)
    fields = fields_of(encoded, load_meanings(dataset.folder), raw)
    labels = dict(zip(dataset.schema.labels, map(float, encoded.labels[0]), strict=True))
    return Shown(f"{path}, record {row}", fields, labels, float(encoded.weight[0]))


def _read(path: Path, schema: DatasetSchema, row: int) -> Encoded:
    """Returns one record as model inputs of one row."""
    import tensorflow as tf

    try:
        (record,) = tf.data.TFRecordDataset(str(path)).skip(row).take(1).as_numpy_iterator()
        parsed = tf.io.parse_example([record], feature_spec(schema))
    except (ValueError, tf.errors.OpError) as error:
        raise CorruptError(f"{path}: record {row} cannot be read: {error}; run preprocess again") from error
    arrays = {key: value.numpy() for key, value in parsed.items()}
    empty = arrays[WEIGHT_KEY][:, :0]
    return Encoded(
        schema=schema,
        ids=arrays.get(IDS_KEY, empty.astype("int64")),
        dense=arrays.get(DENSE_KEY, empty),
        lists={field.name: arrays[LIST_PREFIX + field.name] for field in schema.list_fields},
        labels=arrays[LABELS_KEY],
        weight=arrays[WEIGHT_KEY][:, 0],
    )


def _raw_row(dataset: Dataset, split: str, shard: Shard, row: int) -> dict[str, Any] | None:
    """Returns the raw columns of a record's row; None if they are not kept any more."""
    path = dataset.folder / shard.rows
    if not path.is_file():
        return None
    table = pq.read_table(path)
    keep = read_manifest(dataset.folder)["content"].get("negative_keep", 1.0)
    if split == "train" and keep < 1.0:
        table = table.filter(pa.array(kept_rows(table, keep=keep, labels=dataset.schema.labels)))
    rows: list[dict[str, Any]] = table.slice(row, 1).to_pylist()
    return rows[0] if table.num_rows == shard.num_rows else None


def fields_of(encoded: Encoded, meanings: Meanings, raw: dict[str, Any] | None) -> tuple[Field, ...]:
    """Returns the features of the first of some encoded rows, in the order of ids, lists, dense inputs."""
    schema = encoded.schema
    fields = []
    for field, number in zip(schema.id_fields, encoded.ids[0].tolist(), strict=True):
        meaning = meanings.of_id(field.name, number)
        fields.append(_field(meanings, field.name, table=field.table, value=number, meaning=meaning, raw=raw))
    for listed in schema.list_fields:
        ids = [number for number in encoded.lists[listed.name][0].tolist() if number]
        meaning = ", ".join(meanings.of_id(listed.name, number) for number in ids) or "missing"
        fields.append(_field(meanings, listed.name, table=listed.table, value=ids, meaning=meaning, raw=raw))
    for name, value in zip(schema.dense, encoded.dense[0].tolist(), strict=True):
        if name in meanings.plans:
            meaning = f"about {meanings.of_dense(name, value)}"
            fields.append(_field(meanings, name, table=None, value=value, meaning=meaning, raw=raw))
        else:
            fields.append(Field(name, "indicator", None, value, "missing" if value else "there"))
    return tuple(fields)


def _field(
    meanings: Meanings, name: str, *, table: str | None, value: Any, meaning: str, raw: dict[str, Any] | None
) -> Field:
    values = None if raw is None else {column: plain(raw.get(column)) for column in meanings.columns(name)}
    return Field(name, meanings.kind(name), table, value, meaning, values)


def plain(value: Any) -> Any:
    """Returns a value as JSON holds it: bytes as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return [plain(element) for element in value] if isinstance(value, list) else value
