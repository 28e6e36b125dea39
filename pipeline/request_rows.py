"""Rows to send to the model server: from a file, or of the test split as a client would send them."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline import stages
from pipeline.artefacts import open_artefact
from pipeline.config import Config
from preprocessing.dataset import open_dataset
from preprocessing.errors import ConfigError

__all__ = ["read_rows_file", "request_rows"]


def request_rows(config: Config, *, rows: Path | None, sample: int) -> list[dict[str, Any]]:
    """Returns the rows of a file of JSON lines ("-" is standard input), or the first `sample` rows of the test split.

    Raises:
        ConfigError: if not exactly one of the two is given, or a row is no JSON object.
    """
    if (rows is None) == (sample == 0):
        raise ConfigError("give one of --rows FILE and --sample N")
    return _sample(config, sample) if rows is None else read_rows_file(rows)


def read_rows_file(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a file of JSON lines; "-" is standard input.

    Raises:
        ConfigError: if it cannot be read, or a row is no JSON object.
    """
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"--rows {path}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--rows {path}: cannot be read as UTF-8 text: {error}") from error
    records = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"--rows {path}, line {number}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise ConfigError(f"--rows {path}, line {number}: a row is a JSON object of columns, this is {line[:60]!r}")
        records.append(record)
    if not records:
        raise ConfigError(f"--rows {path}: holds no row")
    return records


def _sample(config: Config, num_rows: int) -> list[dict[str, Any]]:
    """Returns raw rows of the test split as a client would send them: only what the signature takes."""
    from pipeline.scoring import read_rows

    inputs = stages.find_inputs(config)
    dataset = open_dataset(open_artefact(stages.plan("dataset", config, inputs)).folder)
    columns = [column.name for column in dataset.schema.raw_columns]
    table = pa.concat_tables(read_rows(dataset, "test", columns=columns)).slice(0, num_rows)
    return [_plain(row) for row in table.to_pylist()]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not _is_missing(value)}


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
