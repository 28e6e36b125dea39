"""From a local store to one on object storage: versions, each with its manifest last, then `models.config`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from preprocessing.errors import ArtefactError
from preprocessing.manifest import MANIFEST
from preprocessing.remote_files import delete_remote, match_remote
from serving.models_config import MODELS_FILE, read_models
from serving.server.discovery import parse_version
from serving.sync_files import (
    check_name,
    join,
    list_finished,
    read_manifest_of,
    read_text,
    upload_version,
    write_remote,
)
from serving.version_files import write_manifest
from serving.version_store import version_path, versions

__all__ = ["upload"]


def upload(root: Path, dest: str, *, prune: bool, say: Callable[[str], None]) -> None:
    """Copies the versions that a store's `models.config` names, then that file.

    Args:
        root: of the local store.
        dest: of the remote one.
        prune: remove remote versions that the local store lacks.
        say: is told of each thing that is done.

    Raises:
        ArtefactError: if there is nothing to serve, or a remote version is another one of that number.
        SourceError: if the remote store cannot be read or written.
    """
    models = read_models(root)
    if not models:
        raise ArtefactError(f"{root / MODELS_FILE} names no model; promote a version first: rankmill promote CONFIG N")
    for name, model in models.items():
        check_name(name)
        for version in sorted({*model.versions, *model.labels.values()}):
            _upload(root / name, join(dest, name, str(version)), version, say)
    text = (root / MODELS_FILE).read_text(encoding="utf-8")
    if read_text(join(dest, MODELS_FILE)) != text:
        write_remote(join(dest, MODELS_FILE), text)
        say(f"{join(dest, MODELS_FILE)} written")
    if prune:
        for name in models:
            _prune(root / name, join(dest, name), say)


def _upload(store: Path, target: str, version: int, say: Callable[[str], None]) -> None:
    folder = version_path(store, version)
    if not (folder / MANIFEST).is_file():  # published before there were manifests
        write_manifest(folder, version=version)
    manifest, there = read_manifest_of(str(folder)), read_manifest_of(target)
    if manifest is None:
        raise ArtefactError(f"{folder / MANIFEST} cannot be read; publish the model again")
    if there == manifest:
        return
    if there is not None:
        raise ArtefactError(
            f"{target} is another version {version} than {folder}: two stores were uploaded to one place; give another"
        )
    copied = upload_version(folder, target, manifest)
    say(f"model {store.name}: version {version} uploaded, {copied / (1 << 20):.1f} MiB")


def _prune(store: Path, target: str, say: Callable[[str], None]) -> None:
    present = set(versions(store))
    for name in list_finished(target):
        if parse_version(name) in present:
            continue
        folder = join(target, name)
        delete_remote([join(folder, MANIFEST)])  # first: what is left without it is no version
        rest = match_remote([join(folder, "**")])
        if rest:
            delete_remote(rest)
        say(f"model {store.name}: version {name} removed from {target}")
