"""JSON values as text cells: numbers exactly as they stand, strings as bytes, whatever Unicode they hold."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["json_cell", "json_cells", "parse_json"]


def parse_json(text: bytes) -> Any:
    """Returns the value of a JSON text, its numbers as bytes.

    Raises:
        ValueError: if it is no JSON, or nested too deeply.
    """
    try:
        return json.loads(
            text.decode("utf-8", "surrogateescape"),
            parse_int=str.encode,
            parse_float=str.encode,
            parse_constant=str.encode,
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def json_cells(value: Any, delimiter: str | None = None) -> list[bytes | None] | None:
    """Returns the cells of a list; a string is split by `delimiter`, any other scalar is a list of one."""
    if isinstance(value, list):
        return [json_cell(element) for element in value]
    cell = json_cell(value)
    if cell is None:
        return None
    return list(cell.split(delimiter.encode())) if delimiter else [cell]


def json_cell(value: Any) -> bytes | None:
    """Returns the text of a value from `parse_json`; an object or list as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return _encode(value)
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return _encode(json.dumps(value, default=lambda number: number.decode(), ensure_ascii=False))


def _encode(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate, written as an escape
        return text.encode("utf-8", "surrogatepass")
