"""Finding and opening the files of a source, and reading them in blocks. What is read is cleaned by `cleaning`."""

from __future__ import annotations

import contextlib
import glob
import gzip
import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import IO, Any, cast

from preprocessing.blocks import Block
from preprocessing.errors import SourceError
from preprocessing.read_csv import read_csv
from preprocessing.read_jsonl import read_jsonl
from preprocessing.read_parquet import read_parquet
from preprocessing.spec import SourceSpec

__all__ = ["Block", "file_format", "fingerprint", "match", "read_table_blocks"]

_FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def _is_remote(path: str) -> bool:
    return "://" in path


def match(patterns: Sequence[str], *, root: str) -> list[str]:
    """Returns the files that any of the patterns names, sorted, each once; patterns are relative to `root`.

    Raises:
        SourceError: if a pattern matches no file.
    """
    found: set[str] = set()
    for pattern in patterns:
        full = pattern if _is_remote(pattern) else _join(root, pattern)
        files = _match_remote(full) if _is_remote(full) else _match_local(full)
        if not files:
            raise SourceError(f"no file matches {pattern!r} under {root!r}; correct the path, or data.root")
        found.update(files)
    return sorted(found)


def _join(root: str, pattern: str) -> str:
    return f"{root.rstrip('/')}/{pattern}" if _is_remote(root) else os.path.join(root, pattern)


def _match_local(pattern: str) -> list[str]:
    if os.path.isfile(pattern):  # a name may hold characters that a glob would interpret
        return [pattern]
    return [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]


def _match_remote(pattern: str) -> list[str]:
    from apache_beam.io.filesystems import FileSystems

    return [metadata.path for metadata in FileSystems.match([pattern])[0].metadata_list]


def _open(path: str) -> IO[bytes]:
    try:
        if not _is_remote(path):
            return open(path, "rb")
        from apache_beam.io.filesystem import CompressionTypes
        from apache_beam.io.filesystems import FileSystems

        return cast(IO[bytes], FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED))
    except OSError as error:
        raise SourceError(f"{path} cannot be opened: {error}") from error


def fingerprint(path: str) -> dict[str, Any]:
    """Returns the path as given, the size in bytes and the SHA-256 of the content."""
    digest, size = hashlib.sha256(), 0
    with contextlib.closing(_open(path)) as file:
        while data := file.read(1 << 20):
            digest.update(data)
            size += len(data)
    return {"path": path, "size_bytes": size, "sha256": digest.hexdigest()}


def file_format(path: str, declared: str | None) -> str:
    """Returns csv, tsv, jsonl or parquet: as declared, or told from the name without `.gz`.

    Raises:
        SourceError: if neither tells.
    """
    if declared is not None:
        return declared
    suffix = os.path.splitext(path.lower().removesuffix(".gz"))[1]
    if suffix not in _FORMATS:
        known = ", ".join(_FORMATS)
        raise SourceError(f"{path}: the format cannot be told from its name ({known}); declare 'format' of the source")
    return _FORMATS[suffix]


def read_table_blocks(path: str, spec: SourceSpec, *, block_bytes: int) -> Iterator[Block]:
    """Yields the rows of one file in blocks of about `block_bytes`; none for a file without rows.

    Raises:
        SourceError: if the file cannot be read, or lacks a declared column.
    """
    kind = file_format(path, spec.format)
    compressed = path.lower().endswith(".gz")
    if compressed and kind == "parquet":
        raise SourceError(f"{path}: a gzipped Parquet file cannot be read; Parquet compresses its own pages")
    with contextlib.closing(_open(path)) as stored:
        file = cast(IO[bytes], gzip.GzipFile(fileobj=stored)) if compressed else stored
        if kind == "parquet":
            yield from read_parquet(file, path, spec, block_bytes=block_bytes)
        elif kind == "jsonl":
            yield from read_jsonl(file, path, spec, block_bytes=block_bytes)
        else:
            delimiter = "\t" if kind == "tsv" else ","
            yield from read_csv(file, path, spec, delimiter=delimiter, block_bytes=block_bytes)
