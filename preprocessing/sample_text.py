"""Text of a sample to columns of text: CSV by its header, JSON lines by the keys that occur."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from preprocessing.errors import SourceError

__all__ = ["Parsed", "csv_parser", "parse_json_lines"]

# Columns by name, number of rows, malformed rows, whether all of the text was read.
Parsed = tuple[dict[str, pa.Array], int, int, bool]


def csv_parser(delimiter: str, head: str, path: Path) -> Any:
    """Returns a function from text to columns; the text that begins with the header is told by its first row."""
    csv.field_size_limit(1 << 30)
    names = next((row for row in csv.reader(io.StringIO(head, newline=""), delimiter=delimiter) if row), [])
    if names and all(name.strip() and name.strip().replace(".", "", 1).lstrip("-").isdigit() for name in names):
        raise SourceError(
            f"{path}: the first line holds values, not column names ({', '.join(names[:5])}); add a header"
        )

    def parse(text: str, max_rows: int) -> Parsed:
        rows: list[list[str]] = []
        malformed, finished = 0, True
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if len(rows) >= max_rows:
                finished = False
                break
            if len(row) == len(names) and row != names:
                rows.append(row)
            elif row and row != names:
                malformed += 1
        cells = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        kept = [index for index, name in enumerate(names) if name and names.count(name) == 1]
        return {names[i]: pa.array(cells[i], pa.string()) for i in kept}, len(rows), malformed, finished

    return parse


def parse_json_lines(text: str, max_rows: int) -> Parsed:
    """Returns the keys of the objects of a text as columns; nested objects by dotted paths."""
    rows: list[dict[str, Any]] = []
    malformed, finished = 0, True
    for line in text.split("\n"):
        if len(rows) >= max_rows:
            finished = False
            break
        if not line.strip():
            continue
        try:
            value = json.loads(line, parse_int=str, parse_float=str)
        except ValueError:
            value = None
        if isinstance(value, dict):
            rows.append(_flat(value))
        else:
            malformed += 1
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: column for name in names if (column := _json_column([row.get(name) for row in rows])) is not None}
    return columns, len(rows), malformed, finished


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            flat.update(_flat(inner, f"{prefix}{key}."))
        else:
            flat[prefix + key] = inner
    return flat


def _json_column(values: list[Any]) -> pa.Array | None:
    """Returns text or lists of text; None for lists of objects."""
    if any(isinstance(value, list) for value in values):
        lists = [value if isinstance(value, list) or value is None else [value] for value in values]
        if any(isinstance(element, list | dict) for value in lists if value for element in value):
            return None
        texts = [None if value is None else [_json_text(element) for element in value] for value in lists]
        return pa.array(texts, pa.list_(pa.string()))
    return pa.array([_json_text(value) for value in values], pa.string())


def _json_text(value: Any) -> str | None:
    if value is None:
        return None
    return ("true" if value else "false") if isinstance(value, bool) else str(value).encode("utf-8", "replace").decode()
