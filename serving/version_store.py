"""Numbered versions of a model in one folder, as TF Serving reads it: complete, or not there.

A version is copied under a name that is no number, checked, given a manifest with checksums, and renamed. Numbers
come from a durable counter: they only grow, and one whose version was deleted is never given again. A lock keeps two
publishers apart.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from preprocessing.errors import ArtefactError
from preprocessing.manifest import sync_folder, write_json
from serving import history
from serving.preflight import check_disk, copy_bytes
from serving.saved_model_files import check_same_files, check_saved_model
from serving.server.discovery import list_versions
from serving.version_files import write_manifest

__all__ = ["METADATA", "latest", "publish", "read_metadata", "remove", "version_path", "versions"]

METADATA = "rankmill.json"
EXPORT_KEY = "export_key"
_COUNTER = ".rankmill-counter.json"
_LOCK = ".rankmill.lock"
_TEMPORARY = ".tmp-"


def publish(
    store: Path,
    export: Path,
    *,
    metadata: Mapping[str, Any],
    why: str = "",
    extras: Mapping[str, Path] | None = None,
    lock_timeout_s: float = 600.0,
) -> int:
    """Makes the SavedModel at `export` the next version of `store` and returns its number.

    Files are hard-linked where the file system allows it, so `export` must not be changed in place later.
    If the latest version was published with the same `metadata["export_key"]`, that version is returned.

    Args:
        store: folder of the model's versions.
        export: the SavedModel.
        metadata: what is to be known of the version; JSON values.
        why: for the history.
        extras: further files and folders of the version, by their name in it.
        lock_timeout_s: how long to wait for another publisher.

    Raises:
        ArtefactError: if `export` is no complete SavedModel, there is no room for it, or the store cannot be written
            or locked.
    """
    check_saved_model(export)
    try:
        json.dumps(dict(metadata))
    except (TypeError, ValueError) as error:
        raise ArtefactError(f"the metadata of {export} is not JSON: {error}; give plain values only") from error
    try:
        store.mkdir(parents=True, exist_ok=True)
        with _locked(store, lock_timeout_s):
            present = _same_key(store, metadata.get(EXPORT_KEY))
            if present is not None:
                return present
            sources = {"": export, **(extras or {})}
            needed = sum(copy_bytes(source, store) for source in sources.values())
            check_disk(store, needed_bytes=needed, what=f"a copy of {export}")
            number = _add(store, sources, metadata)
            history.append(store, history.Event("publish", number, why=why))
            return number
    except OSError as error:
        raise ArtefactError(f"cannot publish {export} into {store}: {error}; nothing was published") from error


def versions(store: Path) -> list[int]:
    """Returns the numbers of all versions, rising."""
    return sorted(_paths(store))


def latest(store: Path) -> int | None:
    """Returns the highest version, or None if there is none."""
    return max(_paths(store), default=None)


def version_path(store: Path, version: int) -> Path:
    """Returns the folder of a version; ArtefactError if the store has none of that number."""
    paths = _paths(store)
    if version not in paths:
        known = ", ".join(map(str, sorted(paths))) or "none"
        raise ArtefactError(f"{store} has no version {version}; there are: {known}")
    return paths[version]


def read_metadata(store: Path, version: int) -> dict[str, Any]:
    """Returns what was said of a version when it was published.

    Raises:
        ArtefactError: if the version is not there or carries no readable metadata.
    """
    path = version_path(store, version) / METADATA
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}; was version {version} published by rankmill?") from error
    if not isinstance(value, dict):
        raise ArtefactError(f"{path} is not a JSON object")
    return value


def _paths(store: Path) -> dict[int, Path]:
    if not store.is_dir():
        return {}
    return {number: path for number, path in list_versions(store).items() if path.is_dir()}


@contextmanager
def _locked(store: Path, timeout_s: float) -> Iterator[None]:
    try:
        with FileLock(store / _LOCK, timeout=timeout_s):
            yield
    except Timeout as error:
        raise ArtefactError(f"{store} has been locked by another publisher for {timeout_s:g} s") from error


def _same_key(store: Path, key: object) -> int | None:
    newest = latest(store)
    if key is None or newest is None:
        return None
    try:
        return newest if read_metadata(store, newest).get(EXPORT_KEY) == key else None
    except ArtefactError:
        return None


def remove(store: Path, version: int, *, lock_timeout_s: float = 600.0) -> None:
    """Removes a version: at once for whoever looks for it, then file by file.

    Raises:
        ArtefactError: if there is no such version, or it cannot be removed.
    """
    with _locked(store, lock_timeout_s):
        path = version_path(store, version)
        gone = store / f"{_TEMPORARY}removed-{version}"
        try:
            shutil.rmtree(gone, ignore_errors=True)
            path.rename(gone)
            sync_folder(store)
            shutil.rmtree(gone)
        except OSError as error:
            raise ArtefactError(f"{path} cannot be removed: {error}") from error


def _add(store: Path, sources: Mapping[str, Path], metadata: Mapping[str, Any]) -> int:
    for left_over in store.glob(f"{_TEMPORARY}*"):
        # The lock is ours: whoever made it is gone.
        shutil.rmtree(left_over)
    number = _next_number(store)
    temporary = store / f"{_TEMPORARY}{number}"
    try:
        shutil.copytree(sources[""], temporary, copy_function=_link_or_copy)
        check_same_files(sources[""], temporary)
        for name, source in sources.items():
            if name:
                _bring(source, temporary / name)
        write_json(temporary / METADATA, {**metadata, "version": number})
        write_manifest(temporary, version=number)
        _sync_tree(temporary)
        temporary.rename(store / str(number))
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(store)
    return number


def _next_number(store: Path) -> int:
    """Returns the next number, after writing down that it is taken."""
    path = store / _COUNTER
    try:
        last = int(json.loads(path.read_text(encoding="utf-8"))["last"]) if path.exists() else 0
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f'{path} is damaged: {error}; write {{"last": N}} with N the highest ever used') from error
    number = max(last, 0, *list_versions(store)) + 1
    write_json(path, {"last": number})
    return number


def _bring(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link_or_copy, dirs_exist_ok=True)
    else:
        _link_or_copy(str(source), str(target))


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        # Another file system, or one without hard links.
        shutil.copyfile(source, target)
    return target


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    sync_folder(folder)
