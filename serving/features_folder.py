"""Where snapshots stand beside the model: STORE/features/<version>/<number>, the highest number being the newest.

A version of the model may get many: its state moves on every day, whether it is trained again or not. TF Serving
looks at children of STORE that are numbers only.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from preprocessing.errors import ArtefactError
from preprocessing.manifest import digest, exists, read_manifest

__all__ = ["FOLDER", "newest_snapshot", "prune_snapshots", "publish_snapshot", "snapshot_versions"]

FOLDER = "features"
_KEEP = 2  # a reader may be opening the one before
_LOCK_TIMEOUT_S = 600.0


def snapshot_versions(store: Path) -> list[int]:
    """Returns the versions of the model that have a snapshot, rising."""
    return sorted(version for version in _numbers(store / FOLDER) if _snapshots(store, version))


def newest_snapshot(store: Path, version: int | None = None) -> Path | None:
    """Returns the newest snapshot of a version of the model, by default of the highest that has any; None for none."""
    known = snapshot_versions(store)
    chosen = (known[-1] if known else None) if version is None else version
    found = [] if chosen is None else _snapshots(store, chosen)
    return found[-1] if found else None


def publish_snapshot(
    store: Path, version: int, *, key: Mapping[str, Any], write: Callable[[Path, Mapping[str, Any]], Any]
) -> Path:
    """Returns the snapshot of a version; `write` makes it unless the newest one was made from the same key.

    Args:
        store: the folder of the model's versions.
        version: of the model.
        key: JSON values that the content follows from.
        write: given the new folder and what to note in its manifest.

    Raises:
        ArtefactError: if the store cannot be written or locked.
    """
    root = store / FOLDER / str(version)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(store / FOLDER / ".lock", timeout=_LOCK_TIMEOUT_S):
            return _publish(root, digest(key), write)
    except Timeout as error:
        raise ArtefactError(f"{root} has been locked by another publisher for {_LOCK_TIMEOUT_S:g} s") from error
    except OSError as error:
        raise ArtefactError(f"cannot publish features into {root}: {error}; the ones before remain") from error


def prune_snapshots(store: Path, *, keep: Sequence[int]) -> None:
    """Removes the snapshots of versions that are no more."""
    for version in set(_numbers(store / FOLDER)) - set(keep):
        shutil.rmtree(store / FOLDER / str(version), ignore_errors=True)


def _publish(root: Path, key: str, write: Callable[[Path, Mapping[str, Any]], Any]) -> Path:
    for left_over in root.glob(".*.partial"):  # the lock is ours: whoever made it is gone
        shutil.rmtree(left_over)
    present = _snapshots_in(root)
    if present and read_manifest(present[-1]).get("key") == key:
        return present[-1]
    folder = root / str(max(_numbers(root), default=0) + 1)
    write(folder, {"key": key})
    for old in [*present, folder][:-_KEEP]:
        shutil.rmtree(old)
    return folder


def _snapshots(store: Path, version: int) -> Sequence[Path]:
    return _snapshots_in(store / FOLDER / str(version))


def _snapshots_in(root: Path) -> Sequence[Path]:
    return [root / str(number) for number in sorted(_numbers(root)) if exists(root / str(number))]


def _numbers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
