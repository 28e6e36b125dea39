"""Numbered versions of a model in one folder, as TF Serving reads it: complete, or not there.

A version is copied under a name that is no number, checked, and renamed. Numbers come from a durable counter: they
only grow, and one whose version was deleted is never given again. A lock keeps two publishers apart.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from preprocessing.errors import ArtefactError
from preprocessing.manifest import sync_folder, write_json
from serving.server.discovery import list_versions

__all__ = ["METADATA", "latest", "publish", "read_metadata", "version_path", "versions"]

METADATA = "rankmill.json"
EXPORT_KEY = "export_key"
_COUNTER = ".rankmill-counter.json"
_LOCK = ".rankmill.lock"
_TEMPORARY = ".tmp-"
_SHARD = re.compile(r"variables\.data-(\d{5})-of-(\d{5})")


def publish(store: Path, export: Path, *, metadata: Mapping[str, Any], lock_timeout_s: float = 600.0) -> int:
    """Makes the SavedModel at `export` the next version of `store` and returns its number.

    Files are hard-linked where the file system allows it, so `export` must not be changed in place later.
    If the latest version was published with the same `metadata["export_key"]`, that version is returned.

    Raises:
        ArtefactError: if `export` is no complete SavedModel, or the store cannot be written or locked.
    """
    _check_saved_model(export)
    try:
        json.dumps(dict(metadata))
    except (TypeError, ValueError) as error:
        raise ArtefactError(f"the metadata of {export} is not JSON: {error}; give plain values only") from error
    try:
        store.mkdir(parents=True, exist_ok=True)
        with _locked(store, lock_timeout_s):
            present = _same_key(store, metadata.get(EXPORT_KEY))
            return _add(store, export, metadata) if present is None else present
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


def _add(store: Path, export: Path, metadata: Mapping[str, Any]) -> int:
    for left_over in store.glob(f"{_TEMPORARY}*"):
        # The lock is ours: whoever made it is gone.
        shutil.rmtree(left_over)
    number = _next_number(store)
    temporary = store / f"{_TEMPORARY}{number}"
    try:
        shutil.copytree(export, temporary, copy_function=_link_or_copy)
        _check_same_files(export, temporary)
        write_json(temporary / METADATA, {**metadata, "version": number})
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


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        # Another file system, or one without hard links.
        shutil.copyfile(source, target)
    return target


def _check_same_files(export: Path, copied: Path) -> None:
    expected, found = _sizes(export), _sizes(copied)
    if expected != found:
        wrong = sorted(set(expected.items()) ^ set(found.items()))[0][0]
        raise ArtefactError(f"{copied / wrong} differs from {export / wrong}: was the export changed meanwhile?")


def _sizes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    sync_folder(folder)


def _check_saved_model(export: Path) -> None:
    """Raises ArtefactError if files of a SavedModel are missing; whether it runs is for the gate to say."""
    graph = export / "saved_model.pb"
    if not graph.is_file() or not graph.stat().st_size:
        raise ArtefactError(f"{export} is not a SavedModel: saved_model.pb is missing or empty")
    variables = export / "variables"
    if not variables.is_dir():
        return
    found = [match for path in variables.iterdir() if (match := _SHARD.fullmatch(path.name))]
    complete = bool(found) and len(found) == int(found[0][2]) and (variables / "variables.index").is_file()
    if not complete and any(variables.iterdir()):
        raise ArtefactError(f"{variables} is incomplete: it needs variables.index and every shard; export again")
