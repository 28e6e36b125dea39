"""Artefacts that finish last: temporary folder, then manifest, then rename.

A folder without `manifest.json` does not exist for a reader. What made an artefact is in its key, a digest; two
runs that need the same thing share it, and a lock that dies with its process keeps them from writing it together.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from preprocessing.errors import ArtefactError

__all__ = ["MANIFEST", "complete", "digest", "exists", "read_manifest", "sync_folder", "write_json"]

MANIFEST = "manifest.json"


def digest(value: object) -> str:
    """Returns 16 hexadecimal characters that follow from the JSON form of `value` alone.

    Keys are sorted; tuples equal lists.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_json(path: Path, value: object) -> None:
    """Writes `value` so that a reader sees the old file, the new one, or none; never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, sort_keys=True, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def sync_folder(folder: Path) -> None:
    """Flushes a folder's entries to disk, so that a rename survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def complete(temporary: Path, final: Path, *, manifest: Mapping[str, Any]) -> None:
    """Turns a temporary folder into the artefact `final`: writes its manifest, then renames it.

    If `final` is there already, with its manifest, the temporary folder is dropped: equal keys mean equal content.
    """
    write_json(temporary / MANIFEST, dict(manifest))
    sync_folder(temporary)
    if exists(final):
        shutil.rmtree(temporary)
        return
    if final.exists():
        shutil.rmtree(final)
    temporary.rename(final)
    sync_folder(final.parent)


def exists(folder: Path) -> bool:
    """Returns whether `folder` is a finished artefact."""
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> dict[str, Any]:
    """Returns the manifest of a finished artefact.

    Raises:
        ArtefactError: if the folder has none, or it does not parse.
    """
    path = folder / MANIFEST
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtefactError(
            f"{folder} is not a finished artefact: it has no {MANIFEST}; run its stage again"
        ) from error
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ArtefactError(f"{path} is not a JSON object")
    return value
