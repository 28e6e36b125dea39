"""Values that a path holds in its folders, NAME=VALUE as Hive writes them."""

from __future__ import annotations

import datetime as dt
import re
from urllib.parse import unquote_to_bytes

from preprocessing.blocks import absent_column
from preprocessing.errors import SourceError
from preprocessing.spec import SourceSpec

__all__ = ["HIVE_MISSING", "partition_cells", "partition_day", "partition_values", "stored_columns"]

HIVE_MISSING = "__HIVE_DEFAULT_PARTITION__"
_DAY = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})")


def partition_values(path: str) -> dict[str, bytes | None]:
    """Returns the values of the folders of a file, unquoted, by name; of equal names the innermost.

    `__HIVE_DEFAULT_PARTITION__` is a missing value.
    """
    folders = path.rsplit("://", maxsplit=1)[-1].split("/")[:-1]
    pairs = (folder.split("=", 1) for folder in folders if "=" in folder)
    return {
        unquote_to_bytes(name).decode("utf-8", "surrogateescape"): None
        if value == HIVE_MISSING
        else unquote_to_bytes(value)
        for name, value in pairs
    }


def stored_columns(spec: SourceSpec) -> dict[str, str]:
    """Returns the columns that are in the rows of files, not in their paths: declared name to name in the file."""
    return {key: column.source_name or key for key, column in spec.columns.items() if not column.partition}


def partition_cells(path: str, spec: SourceSpec) -> dict[str, bytes | None]:
    """Returns the text of the partition columns of a file by declared name.

    Raises:
        SourceError: if the path has no folder for one of them.
    """
    wanted = {key: column.source_name or key for key, column in spec.columns.items() if column.partition}
    if not wanted:
        return {}
    found = partition_values(path)
    for name in wanted.values():
        if name not in found:
            raise absent_column(path, name, found, what="partition folder")
    return {key: found[name] for key, name in wanted.items()}


def partition_day(path: str, name: str) -> dt.date | None:
    """Returns the day of a file by its folder, such as dt=2026-11-01/ or dt=20261101/; None for Hive's missing value.

    Raises:
        SourceError: if it has no such folder, or the folder names no day.
    """
    found = partition_values(path)
    if name not in found:
        raise absent_column(path, name, found, what="partition folder")
    value = found[name]
    if value is None:
        return None
    match = _DAY.fullmatch(value.decode("utf-8", "replace"))
    try:
        return dt.date(*map(int, match.groups())) if match else _no_day(path, name)
    except ValueError as error:
        raise SourceError(f"{path}: the folder {name}= holds no day ({error})") from error


def _no_day(path: str, name: str) -> dt.date:
    raise SourceError(f"{path}: the folder {name}= must hold a day, such as 2026-11-01 or 20261101; correct the path")
