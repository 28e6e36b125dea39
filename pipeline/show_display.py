"""Records and followed rows as a person reads them, or as JSON lines."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.show import Field, Shown, plain
from pipeline.show_raw import Followed
from preprocessing.shown_text import shown_text

__all__ = ["followed", "records"]

_LONG = 8  # ids of a list that are shown


def records(shown: Sequence[Shown], *, as_json: bool) -> None:
    """Prints decoded records."""
    if as_json:
        _print_json(shown)
        return
    console = Console(highlight=False)
    for record in shown:
        console.print(record.where, markup=False, soft_wrap=True)
        console.print(_fields(record.fields))
        labels = ", ".join(f"{name} {value:g}" for name, value in record.labels.items())
        console.print(f"labels: {labels}; weight {record.weight:g}", markup=False)


def followed(rows: Sequence[Followed], *, as_json: bool) -> None:
    """Prints rows on their way through cleaning and transform."""
    if as_json:
        _print_json(rows)
        return
    console = Console(highlight=False)
    for row in rows:
        console.print(row.where, markup=False, soft_wrap=True)
        table = Table("column", "raw", "cleaned", "why")
        for cell in row.cells:
            table.add_row(*_cells(cell.column, _text(cell.raw), _text(plain(cell.cleaned)), cell.why))
        console.print(table)
        console.print(_fields(row.fields))


def _print_json(values: Iterable[Shown | Followed]) -> None:
    console = Console(highlight=False)
    for value in values:
        text = json.dumps(_jsonable(dataclasses.asdict(value)), ensure_ascii=True)
        console.out(text, highlight=False)


def _jsonable(value: Any) -> Any:
    """Returns a value without bytes, and without the numbers that JSON does not know."""
    if isinstance(value, dict):
        return {key: _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else plain(value)


def _fields(fields: Sequence[Field]) -> Table:
    table = Table("feature", "kind", "raw", "table", "id or value", "stands for")
    for field in fields:
        raw = "" if field.raw is None else ", ".join(_text(value) for value in field.raw.values())
        value = f"{field.value:.6g}" if isinstance(field.value, float) else _text(field.value)
        table.add_row(*_cells(field.name, field.kind, raw, field.table or "", value, field.meaning))
    return table


def _cells(*texts: str) -> list[Text]:
    return [Text(text, overflow="fold") for text in texts]


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        more = f", ... ({len(value)})" if len(value) > _LONG else ""
        return f"[{', '.join(_text(element) for element in value[:_LONG])}{more}]"
    return shown_text(str(value).encode("utf-8", "backslashreplace"))
