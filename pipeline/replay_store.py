"""Repaired rows as additional files of their sources, each row stored once.

    WORK_DIR/replayed/<source>/[dt=.../]<digest>.<ext>         rows, like other files of the source
    WORK_DIR/replayed/<source>/[dt=.../]<digest>.<ext>.json    whose rejects they are; without it there is no file

A row is told by the content of the file it was rejected in and its position there. To take a replay back, remove both.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from preprocessing.errors import ArtefactError
from preprocessing.log_sources import SourceFile
from preprocessing.manifest import write_json

__all__ = ["REPLAYED", "repaired_counts", "replayed_files", "replayed_rows", "store"]

REPLAYED = "replayed"


def replayed_files(work_dir: Path) -> dict[str, list[str]]:
    """Returns the files of repaired rows of each source, sorted; they are read like any other file of it."""
    files: dict[str, list[str]] = {}
    for source, record in _records(work_dir):
        files.setdefault(source, []).append(str(record.with_name(record.name.removesuffix(".json"))))
    return files


def replayed_rows(work_dir: Path) -> dict[str, set[tuple[str, int]]]:
    """Returns of each source the rejects that were replayed: (fingerprint of the file, position)."""
    rows: dict[str, set[tuple[str, int]]] = {}
    for source, record in _records(work_dir):
        found = rows.setdefault(source, set())
        found.update((row["fingerprint"], row["position"]) for row in _read(record)["rows"])
    return rows


def repaired_counts(work_dir: Path, files: Mapping[str, Sequence[SourceFile]]) -> dict[str, int]:
    """Returns how many rejects of these files have been replayed, by source: they no longer count against a budget."""
    known = {source: {file.fingerprint for file in members} for source, members in files.items()}
    return {
        source: sum(fingerprint in known.get(source, set()) for fingerprint, _ in rows)
        for source, rows in replayed_rows(work_dir).items()
    }


def _records(work_dir: Path) -> list[tuple[str, Path]]:
    root = work_dir / REPLAYED
    found = sorted(path for path in root.rglob("*.json") if not path.name.startswith("."))
    complete = [path for path in found if path.with_name(path.name.removesuffix(".json")).is_file()]
    return [(path.relative_to(root).parts[0], path) for path in complete]


def _read(record: Path) -> dict[str, Any]:
    try:
        value = json.loads(record.read_text(encoding="utf-8"))
        return {"rows": [{"fingerprint": str(r["fingerprint"]), "position": int(r["position"])} for r in value["rows"]]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(
            f"{record} cannot be read: {error}; remove it and the file beside it, and replay again"
        ) from error


def store(
    work_dir: Path, source: str, *, folder: str, ext: str, data: bytes, rows: Sequence[Mapping[str, Any]]
) -> Path:
    """Writes a file of repaired rows, then the record of whose rejects they are, and returns the file.

    Args:
        work_dir: the work folder.
        source: name of the source.
        folder: partition folders of the original file, such as `dt=2026-11-01/`.
        ext: ending of the name, that tells format and compression.
        data: content of the file.
        rows: file, fingerprint and position of each reject.
    """
    origins = json.dumps([dict(row) for row in rows], sort_keys=True).encode()  # equal rows may be of several rejects
    name = f"{hashlib.sha256(data + origins).hexdigest()[:16]}{ext}"
    target = work_dir / REPLAYED / source / folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    temporary.replace(target)
    write_json(target.with_name(f"{target.name}.json"), {"rows": [dict(row) for row in rows]})
    return target
