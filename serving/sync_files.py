"""Files of a store wherever it is: a folder, or a prefix of an object store."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from preprocessing.errors import ArtefactError, CorruptError, SourceError
from preprocessing.file_access import open_bytes
from preprocessing.manifest import MANIFEST, sync_folder
from preprocessing.remote_files import create_remote, is_remote, match_remote, open_remote
from serving.preflight import check_disk
from serving.version_files import facts_of, file_facts, hashed_copy

__all__ = [
    "check_name",
    "clear_partials",
    "download_version",
    "join",
    "list_finished",
    "read_manifest_of",
    "read_text",
    "upload_version",
    "write_remote",
]

_PARTIAL = ".tmp-sync-"


def join(root: str, *parts: str) -> str:
    """Returns a path below a root, local or remote."""
    return "/".join([root.rstrip("/"), *parts])


def read_text(path: str) -> str | None:
    """Returns a small text file, or None if it is not there.

    Raises:
        SourceError: if it cannot be read.
    """
    try:
        if not is_remote(path):
            return Path(path).read_text(encoding="utf-8")
        if not match_remote([path]):
            return None
        with open_remote(path) as file:
            return file.read().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} cannot be read: {error}") from error


def read_manifest_of(folder: str) -> dict[str, Any] | None:
    """Returns the manifest of a version, or None while the version is not finished.

    Raises:
        SourceError: if it cannot be read.
        CorruptError: if it is no manifest of a version.
    """
    text = read_text(join(folder, MANIFEST))
    if text is None:
        return None
    try:
        manifest = json.loads(text)
    except ValueError:
        return None  # half written, on a store that shows files before they are closed
    file_facts(manifest if isinstance(manifest, dict) else {}, where=folder)
    return dict(manifest)


def list_finished(folder: str) -> list[str]:
    """Returns the names of the version folders below `folder` that have a manifest."""
    pattern = join(folder, "*", MANIFEST)
    if is_remote(folder):
        return sorted(path.split("/")[-2] for path in match_remote([pattern]))
    return sorted(path.parent.name for path in Path(folder).glob(f"*/{MANIFEST}"))


def download_version(source: str, store: Path, version: int, manifest: Mapping[str, Any]) -> int:
    """Brings a finished version into a local store, checks it and renames it into place; returns the bytes copied.

    What a download that was broken off has left is used if it is right.

    Raises:
        CorruptError: if a file is not what the manifest says.
        SourceError: if a file cannot be read.
        ArtefactError: if there is no room for the version.
    """
    facts = file_facts(manifest, where=source)
    store.mkdir(parents=True, exist_ok=True)
    check_disk(store, needed_bytes=sum(each["size"] for each in facts.values()), what=f"version {version} of {source}")
    partial = store / f"{_PARTIAL}{version}"
    copied = 0
    for name, expected in facts.items():
        target = partial / name
        if not _is_right(target, expected):
            copied += _download(join(source, name), target, expected)
    for path in partial.rglob("*"):
        if path.is_file() and path.relative_to(partial).as_posix() not in facts:
            path.unlink()
    _write_synced(partial / MANIFEST, json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    for folder, _, _ in os.walk(partial):
        sync_folder(Path(folder))
    partial.rename(store / str(version))
    sync_folder(store)
    return copied


def _is_right(path: Path, expected: Mapping[str, Any]) -> bool:
    return path.is_file() and path.stat().st_size == expected["size"] and facts_of(path) == expected


def _download(source: str, target: Path, expected: Mapping[str, Any]) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open_bytes(source) as reader, target.open("wb") as writer:
            found = hashed_copy(reader, writer)
            writer.flush()
            os.fsync(writer.fileno())
    except SourceError:
        raise
    except Exception as error:  # client libraries of stores raise errors of many kinds
        raise SourceError(f"{source} cannot be copied to {target}: {error}") from error
    if found != expected:
        target.unlink()
        raise CorruptError(
            f"{source} is not what was published: {found['size']} bytes, SHA-256 {found['sha256'][:12]}..., expected "
            f"{expected['size']}, {expected['sha256'][:12]}...; upload the version again"
        )
    return int(expected["size"])


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def upload_version(folder: Path, target: str, manifest: Mapping[str, Any]) -> int:
    """Copies a version to a remote store, its manifest last; returns the bytes copied.

    Raises:
        CorruptError: if a file is not what the manifest says; the manifest is not written then.
        SourceError: if the store takes a file not.
    """
    facts = file_facts(manifest, where=str(folder))
    for name, expected in facts.items():
        try:
            with (folder / name).open("rb") as reader, create_remote(join(target, name)) as writer:
                found = hashed_copy(reader, writer)
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(f"{folder / name} cannot be copied to {join(target, name)}: {error}") from error
        if found != expected:
            raise CorruptError(f"{folder / name} is not what was published; {target} is left unfinished: publish again")
    write_remote(join(target, MANIFEST), json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    return sum(int(expected["size"]) for expected in facts.values())


def write_remote(path: str, text: str) -> None:
    """Writes a small text file to a remote store.

    Raises:
        SourceError: if the store does not take it.
    """
    try:
        with create_remote(path) as file:
            file.write(text.encode())
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(f"{path} cannot be written: {error}") from error


def clear_partials(store: Path, keep: set[int]) -> None:
    """Removes what downloads have left of versions that nobody wants any more."""
    for path in store.glob(f"{_PARTIAL}*"):
        if path.name.removeprefix(_PARTIAL) not in {str(version) for version in keep}:
            shutil.rmtree(path, ignore_errors=True)


def check_name(name: str) -> None:
    """Raises ArtefactError if a model's name is no name of a folder."""
    if not name or "/" in name or "\0" in name or name in {".", ".."}:
        raise ArtefactError(f"models.config names a model {name!r}: it cannot be the name of a folder")
