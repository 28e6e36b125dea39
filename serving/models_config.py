"""`models.config` in the root of a store: which versions of each model a server loads, and the labels on them.

The server's own file, a ModelServerConfig as text, is where labels are kept: what it says is what is served. It is
replaced by rename only. Models that others have listed in it stay as they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from preprocessing.errors import ArtefactError
from preprocessing.manifest import sync_folder
from serving.server.config_files import model_configs
from serving.server.discovery import list_versions, wanted_versions
from serving.server.status import StatusError

__all__ = [
    "MODELS_FILE",
    "ServedModel",
    "parse_models",
    "read_model",
    "read_models",
    "remove_model",
    "write_model",
    "write_text",
]

MODELS_FILE = "models.config"
_LOCK = ".rankmill-models.lock"
_LOCK_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True)
class ServedModel:
    """A model as a server is told to serve it: versions, rising, and the labels on them."""

    name: str
    base_path: Path
    versions: tuple[int, ...] = ()
    labels: Mapping[str, int] = dataclasses.field(default_factory=dict)


def read_models(root: Path) -> dict[str, ServedModel]:
    """Returns the models of a store by name; none if the store has no `models.config`.

    Raises:
        ArtefactError: if the file cannot be read or parsed.
    """
    return parse_models(_read(root))


def read_model(root: Path, name: str) -> ServedModel | None:
    """Returns one model of a store, or None if no server is told to serve it."""
    return read_models(root).get(name)


def parse_models(config: Any, *, where: Mapping[str, Path] | None = None) -> dict[str, ServedModel]:
    """Returns the models of a ModelServerConfig; policies that others wrote are resolved by what is there.

    Args:
        config: the proto.
        where: folders to look for versions in, by model, if not the base paths.
    """
    try:
        found = model_configs(config)
    except StatusError as error:
        raise ArtefactError(f"{MODELS_FILE} holds no list of models: {error.message}") from error
    models = {}
    for model in found:
        versions = model.policy.versions
        if model.policy.kind != "specific":
            folder = (where or {}).get(model.name, model.base_path)
            versions = tuple(wanted_versions(list_versions(folder), model.policy)) if folder.is_dir() else ()
        models[model.name] = ServedModel(model.name, model.base_path, tuple(sorted(set(versions))), dict(model.labels))
    return models


def write_model(root: Path, model: ServedModel) -> None:
    """Puts a model into `models.config` in place of what was said of it; the other models stay."""
    with _locked(root):
        config = _read(root)
        entry = _entry_of(config, model.name)
        entry.base_path = str(model.base_path.absolute())
        entry.model_platform = "tensorflow"
        entry.model_version_policy.specific.versions[:] = sorted(set(model.versions))
        entry.version_labels.clear()
        for label in sorted(model.labels):
            entry.version_labels[label] = model.labels[label]
        write_text(root / MODELS_FILE, text_format.MessageToString(config))


def remove_model(root: Path, name: str) -> None:
    """Takes a model out of `models.config`; a server unloads it."""
    with _locked(root):
        config = _read(root)
        entries = config.model_config_list.config
        kept = [entry for entry in entries if entry.name != name]
        del entries[:]
        entries.extend(kept)
        config.model_config_list.SetInParent()
        write_text(root / MODELS_FILE, text_format.MessageToString(config))


def write_text(path: Path, text: str) -> None:
    """Replaces a file by rename and flushes it; a text that is there already is not written again."""
    with contextlib.suppress(FileNotFoundError):
        if path.read_text(encoding="utf-8") == text:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def _entry_of(config: Any, name: str) -> Any:
    """Returns the entry of a model, emptied, or a new one."""
    for entry in config.model_config_list.config:
        if entry.name == name:
            entry.Clear()
            entry.name = name
            return entry
    return config.model_config_list.config.add(name=name)


def _read(root: Path) -> Any:
    path, config = root / MODELS_FILE, model_server_config_pb2.ModelServerConfig()
    try:
        text_format.Parse(path.read_text(encoding="utf-8"), config)
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise ArtefactError(
            f"{path} cannot be read: {error}; mend it by hand, or remove it and promote each model again"
        ) from error
    if config.WhichOneof("config") == "custom_model_config":
        raise ArtefactError(f"{path} holds a custom_model_config, no list of models; keep that server's file elsewhere")
    config.model_config_list.SetInParent()
    return config


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    root.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(root / _LOCK, timeout=_LOCK_TIMEOUT_S):
            yield
    except Timeout as error:
        raise ArtefactError(
            f"{root / MODELS_FILE} has been locked by another process for {_LOCK_TIMEOUT_S:g} s"
        ) from error
