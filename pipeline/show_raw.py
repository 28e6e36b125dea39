"""A raw row on its way through cleaning and transform: what each value becomes, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.config import Config
from pipeline.config_columns import declared_columns, joined_columns
from pipeline.show import Field, fields_of, plain
from preprocessing.coercion import arrow_type, coerce
from preprocessing.dataset import TRANSFORM_FOLDER, Dataset
from preprocessing.errors import ConfigError
from preprocessing.explain import UNKNOWN, Meanings, load_meanings
from preprocessing.json_values import json_cell, json_cells, parse_json
from preprocessing.nested import value_at
from preprocessing.reasons import REASONS
from preprocessing.schema import LABEL_PREFIX
from preprocessing.spec import ColumnSpec, FeatureSpec, columns_of

__all__ = ["Cell", "Followed", "follow_row", "follow_rows"]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A raw value, what cleaning makes of it, and why: empty if it is only converted."""

    column: str
    raw: Any
    cleaned: Any
    why: str


@dataclasses.dataclass(frozen=True)
class Followed:
    """A row: its cells, and the features made of them."""

    where: str
    cells: tuple[Cell, ...]
    fields: tuple[Field, ...]


def follow_rows(config: Config, dataset: Dataset, rows: Path) -> list[Followed]:
    """Returns what becomes of rows in JSON lines, objects of raw columns as the logs hold them.

    A column may go by its declared name or by its name in the file; one that is absent is missing.

    Raises:
        ConfigError: if a line is no object, or names a column that no source declares.
    """
    specs = {name: joined_columns(config.data)[name] for name in _read_columns(config.features)}
    declared = declared_columns(config.data)
    found = [(f"{rows}, line {line}", row) for line, row in _objects(rows)]
    followed = [(where, _cells(row, specs, declared, where=where)) for where, row in found]
    follower = _Follower.of(config, dataset)
    return [follower.follow(cells, where=where) for where, cells in followed]


def follow_row(config: Config, dataset: Dataset, row_id: str) -> list[Followed]:
    """Returns what became of the rows of the dataset with a value of `roles.row_id`.

    Raises:
        ConfigError: if the config names no such column, or no row has the value.
    """
    name = config.data.roles.row_id
    if name is None:
        raise ConfigError("--row-id: the config has no data.roles.row_id, the column that identifies a row")
    found: list[tuple[str, tuple[Cell, ...]]] = []
    for path in _row_files(dataset):
        table = pq.read_table(path)
        column = table[name].cast(pa.binary()) if name in table.column_names else pa.chunked_array([[]], pa.binary())
        for row in table.filter(pc.fill_null(pc.equal(column, row_id.encode()), False)).to_pylist():
            cells = tuple(
                Cell(column, plain(row.get(column)), row.get(column), "missing" if row.get(column) is None else "")
                for column in _read_columns(config.features)
            )
            found.append((f"{name} {row_id}, {path}", cells))
    if not found:
        raise ConfigError(
            f"--row-id {row_id}: no row of the dataset has this {name}; it may have been rejected (rankmill replay "
            "--export lists such rows), be a duplicate, or lie outside the days of data.split"
        )
    follower = _Follower.of(config, dataset)
    return [follower.follow(cells, where=where) for where, cells in found]


def _row_files(dataset: Dataset) -> list[Path]:
    paths = (dataset.folder / shard.rows for shards in dataset.splits.values() for shard in shards)
    return [path for path in dict.fromkeys(paths) if path.is_file()]


def _read_columns(features: Sequence[FeatureSpec]) -> list[str]:
    return list(dict.fromkeys(column for feature in features for column in columns_of(feature)))


def _objects(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Returns the lines of a file that hold anything, their numbers from 1; JSON numbers as they are written."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(f"--raw {path}: cannot be read: {error}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = parse_json(line)
        except ValueError as error:
            raise ConfigError(f"{path}, line {number}: not JSON") from error
        if not isinstance(value, dict):
            raise ConfigError(f"{path}, line {number}: a row is a JSON object of raw columns")
        found.append((number, value))
    if not found:
        raise ConfigError(f"--raw {path}: holds no row")
    return found


def _cells(
    row: Mapping[str, Any], specs: Mapping[str, ColumnSpec], declared: Mapping[str, ColumnSpec], *, where: str
) -> tuple[Cell, ...]:
    in_files = {column.source_name or name for name, column in declared.items()}
    names = {*in_files, *declared, *specs}
    unknown = sorted(set(row) - names - {name.split(".")[0] for name in in_files})
    if unknown:
        raise ConfigError(f"{where}: no source declares column {unknown[0]!r}; there are {', '.join(sorted(names))}")
    return tuple(
        _cell(name, row[name] if name in row else value_at(dict(row), spec.source_name or name), spec)
        for name, spec in specs.items()
    )


def _cell(name: str, value: Any, spec: ColumnSpec) -> Cell:
    is_list = spec.type.startswith("list<")
    values = json_cells(value, spec.delimiter) if is_list and isinstance(value, list) else json_cell(value)
    kind = pa.list_(pa.binary()) if isinstance(values, list) else pa.binary()
    coerced = coerce(pa.array([values], kind), spec, empty_is_missing=True)
    cleaned = coerced.values[0].as_py()
    return Cell(name, _shown(values), cleaned, _why(values, cleaned, [reason for reason, _ in coerced.faults], spec))


def _shown(value: Any) -> Any:
    return plain(list(value) if isinstance(value, list) else value)


def _why(value: Any, cleaned: Any, faults: Sequence[str], spec: ColumnSpec) -> str:
    """Returns why a value is missing or refused; empty if it is neither."""
    if faults:
        then = "the row would be rejected" if spec.on_invalid == "reject" else "missing"
        return f"{then}: {REASONS.get(faults[0], faults[0])} ({faults[0]})"
    if cleaned is not None:
        return ""
    rejected = "the row would be rejected: a required value is missing; " if spec.required else "missing: "
    if value is None:
        return f"{rejected}not given"
    if value in (b"", []):
        return f"{rejected}empty"
    return f"{rejected}one of the values that mean so ({', '.join(map(str, spec.missing)) or 'NaN, infinities'})"


@dataclasses.dataclass(frozen=True)
class _Follower:
    """The dataset's own transform, loaded once."""

    config: Config
    dataset: Dataset
    transform: Any
    meanings: Meanings

    @classmethod
    def of(cls, config: Config, dataset: Dataset) -> _Follower:
        from preprocessing.transform import load_transform

        transform = load_transform(dataset.folder / TRANSFORM_FOLDER)
        return cls(config, dataset, transform, load_meanings(dataset.folder))

    def follow(self, cells: Sequence[Cell], *, where: str) -> Followed:
        """Returns what the transform makes of cleaned values."""
        from preprocessing.encode import encode_columns

        specs = joined_columns(self.config.data)
        arrays = {cell.column: pa.array([cell.cleaned], arrow_type(specs[cell.column])) for cell in cells}
        labels = {LABEL_PREFIX + label: pa.array([0.0], pa.float32()) for label in self.dataset.schema.labels}
        table = pa.table({**arrays, **labels})
        encoded = encode_columns(self.transform, self.dataset.schema, self.config.features, table)
        raw = {cell.column: cell.raw for cell in cells}
        fields = fields_of(encoded, self.meanings, raw)
        return Followed(where, tuple(cells), tuple(self._explained(field) for field in fields))

    def _explained(self, field: Field) -> Field:
        """Returns a field that says why a token is not in the vocabulary."""
        if not field.meaning.startswith(UNKNOWN):
            return field
        declared = self.meanings.plans[field.name]["feature"]
        least = declared.get("min_count", 1)
        limit = f", or beyond max_size {declared['max_size']}" if declared.get("max_size") else ""
        why = f"seen fewer than {least} times in train{limit}" if least > 1 else f"not seen in train{limit}"
        return dataclasses.replace(field, meaning=f"{field.meaning}: {why}")
