"""The files of a version: what each must be, in a manifest that is written last and goes wherever they go."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from preprocessing.errors import CorruptError
from preprocessing.manifest import MANIFEST, write_json

__all__ = [
    "FileFacts",
    "facts_of",
    "file_facts",
    "files_of",
    "hashed_copy",
    "size_bytes",
    "write_manifest",
]

FileFacts = dict[str, dict[str, Any]]
_CHUNK = 1 << 20


def write_manifest(folder: Path, *, version: int) -> None:
    """Writes sizes and checksums of all files of a version into its manifest."""
    facts = {name: facts_of(folder / name) for name in _names(folder)}
    write_json(folder / MANIFEST, {"version": version, "files": facts})


def file_facts(manifest: Mapping[str, Any], *, where: str) -> FileFacts:
    """Returns size and SHA-256 of each file that a manifest names.

    Raises:
        CorruptError: if the manifest is none of a version, or names a file outside of its folder.
    """
    files = manifest.get("files")
    if not isinstance(files, dict) or not files:
        raise CorruptError(f"{where}: {MANIFEST} lists no files; was the version published by rankmill?")
    for name, facts in files.items():
        parts = Path(name).parts
        whole = isinstance(facts, dict) and type(facts.get("size")) is int and isinstance(facts.get("sha256"), str)
        if not whole or not parts or ".." in parts or os.path.isabs(name):
            raise CorruptError(f"{where}: {MANIFEST} has an entry that is no file of a version: {name!r}")
    return files


def hashed_copy(source: IO[bytes], target: IO[bytes]) -> dict[str, Any]:
    """Copies a file; returns the size and SHA-256 of what was copied."""
    digest, size = hashlib.sha256(), 0
    while chunk := source.read(_CHUNK):
        digest.update(chunk)
        target.write(chunk)
        size += len(chunk)
    return {"size": size, "sha256": digest.hexdigest()}


def facts_of(path: Path) -> dict[str, Any]:
    """Returns the size and SHA-256 of a file."""
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _names(folder: Path) -> list[str]:
    return [name for name in sorted(files_of(folder)) if name != MANIFEST]


def files_of(folder: Path) -> dict[str, int]:
    """Returns the size of each file below a folder, by relative name."""
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def size_bytes(folder: Path) -> int:
    """Returns the size of all files below a folder."""
    return sum(files_of(folder).values())
