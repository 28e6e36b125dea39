"""The format of a file: declared, or told from its name."""

from __future__ import annotations

import os

from preprocessing.compression import without_suffix
from preprocessing.errors import SourceError

__all__ = ["file_format", "is_parquet"]

_FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def file_format(path: str, declared: str | None) -> str:
    """Returns csv, tsv, jsonl or parquet: as declared, or told from the name without `.gz`, `.zst` or `.bz2`.

    Raises:
        SourceError: if neither tells.
    """
    if declared is not None:
        return declared
    suffix = _suffix(path)
    if suffix not in _FORMATS:
        known = ", ".join(_FORMATS)
        raise SourceError(f"{path}: the format cannot be told from its name ({known}); declare 'format' of the source")
    return _FORMATS[suffix]


def is_parquet(path: str, declared: str | None) -> bool:
    """Returns whether a file is Parquet; one whose format cannot be told is not."""
    return (declared or _FORMATS.get(_suffix(path))) == "parquet"


def _suffix(path: str) -> str:
    return os.path.splitext(without_suffix(path.lower()))[1]
