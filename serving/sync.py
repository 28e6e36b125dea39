"""A copy of a store, kept up to date: finished versions first, then what servers are told of them.

A model server opens local folders only and knows no completion marker. So a version is downloaded under a name that
is no number, checked against the manifest that `publish` wrote last, and renamed; `models.config` follows when all
that it names is there, in the steps that the server beside demands; what it names no more is removed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from filelock import FileLock, Timeout
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from preprocessing.errors import ArtefactError, ConfigError, RankmillError
from preprocessing.remote_files import is_remote
from serving.models_config import MODELS_FILE, ServedModel, parse_models, read_model, read_models, remove_model
from serving.rollout import Place, roll_out, running_states
from serving.server.config_files import model_configs
from serving.server.discovery import parse_version, wanted_versions
from serving.server_status import LOADED, ask_label
from serving.sync_files import (
    check_name,
    clear_partials,
    download_version,
    join,
    list_finished,
    read_manifest_of,
    read_text,
)
from serving.sync_up import upload
from serving.version_store import remove, versions

__all__ = ["SyncOptions", "sync_forever", "sync_once"]

_LOCK = ".rankmill-sync.lock"


@dataclasses.dataclass(frozen=True)
class SyncOptions:
    """How to copy.

    Attributes:
        servers: of a local copy, to be waited for when labels move.
        poll_s: how often they read `models.config`.
        load_timeout_s: how long a version may take to load there.
        prune: uploading, remove versions that the source lacks.
        say: is told of each thing that is done.
    """

    servers: tuple[str, ...] = ()
    poll_s: float = 2.0
    load_timeout_s: float = 300.0
    prune: bool = False
    say: Callable[[str], None] = lambda _: None


def sync_once(source: str, dest: str, options: SyncOptions) -> None:
    """Brings `dest` to what `source` is; one of them is local.

    Raises:
        ConfigError: if both are remote.
        RankmillError: if something could not be copied; everything else has been.
    """
    if is_remote(dest):
        if is_remote(source):
            raise ConfigError(f"{source} and {dest} are both remote; copy to a local folder first")
        upload(Path(source), dest, prune=options.prune, say=options.say)
        return
    root = Path(dest).absolute()
    root.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(root / _LOCK, timeout=1.0):
            _download(source, root, options)
    except Timeout as error:
        raise ArtefactError(f"another process syncs {root}; end it first") from error


def sync_forever(source: str, dest: str, options: SyncOptions, *, every_s: float) -> None:
    """Syncs again and again; what goes wrong is said once and tried again."""
    last = ""
    while True:
        try:
            sync_once(source, dest, options)
            last = ""
        except ConfigError:
            raise
        except (RankmillError, OSError) as error:
            if str(error) != last:
                options.say(f"not synced, trying again: {error}")
            last = str(error)
        time.sleep(every_s)


def _download(source: str, root: Path, options: SyncOptions) -> None:
    models, faults = _models_of(source), []
    for name, model in models.items():
        place = Place(root / name, options.servers, options.poll_s, options.load_timeout_s, options.say)
        try:
            _bring_model(join(source, name), place, model)
        except (RankmillError, OSError) as error:
            faults.append(error)
    for name in read_models(root).keys() - models.keys():
        remove_model(root, name)
        options.say(f"model {name} is served no more")
    _remove_unused(root, options)
    if faults:
        raise ArtefactError("; ".join(map(str, faults)))


def _models_of(source: str) -> dict[str, ServedModel]:
    """Returns what the source's `models.config` wants, its policies resolved by the versions that are finished."""
    path = join(source, MODELS_FILE)
    text = read_text(path)
    if text is None:
        raise ArtefactError(f"{path} is not there; promote a version of its store, or upload it with rankmill sync")
    config = model_server_config_pb2.ModelServerConfig()
    try:
        text_format.Parse(text, config)
    except text_format.ParseError as error:
        raise ArtefactError(f"{path} cannot be parsed: {error}; what was copied before stays as it is") from error
    models = parse_models(config, where={})
    for model in model_configs(config):
        check_name(model.name)
        if model.policy.kind != "specific":
            numbers = [number for name in list_finished(join(source, model.name)) if (number := parse_version(name))]
            found = tuple(sorted(wanted_versions(numbers, model.policy)))
            models[model.name] = dataclasses.replace(models[model.name], versions=found)
    return models


def _bring_model(source: str, place: Place, model: ServedModel) -> None:
    named = tuple(sorted({*model.versions, *model.labels.values()}))
    for version in named:
        _bring_version(join(source, str(version)), place, version)
    target = dataclasses.replace(model, base_path=place.store, versions=named)
    if read_model(place.root, place.model) == target and _is_settled(place, target):
        return
    roll_out(place, target)
    labels = ", ".join(f"{label} {version}" for label, version in sorted(target.labels.items())) or "no labels"
    place.say(f"model {place.model}: versions {', '.join(map(str, named))}; {labels}")


def _bring_version(source: str, place: Place, version: int) -> None:
    manifest, local = read_manifest_of(source), place.store / str(version)
    if local.is_dir():
        here = read_manifest_of(str(local))
        if manifest is not None and here != manifest:
            raise ArtefactError(
                f"{source} is another version {version} than the one in {local}: numbers are never given twice; "
                f"remove {local} if the source is right"
            )
        return
    if manifest is None:
        raise ArtefactError(f"{source} is not finished: it has no manifest.json; it is looked for again")
    copied = download_version(source, place.store, version, manifest)
    place.say(f"model {place.model}: version {version} copied, {copied / (1 << 20):.1f} MiB")


def _is_settled(place: Place, target: ServedModel) -> bool:
    """Returns whether every running server does what the target says."""
    for address, states in running_states(place).items():
        loaded = {version for version, state in states.items() if state.state == "AVAILABLE"}
        if not loaded >= set(target.versions):
            return False
        if any(ask_label(address, place.model, label) != version for label, version in target.labels.items()):
            return False
    return True


def _remove_unused(root: Path, options: SyncOptions) -> None:
    """Removes versions that `models.config` names no more and no running server holds."""
    models: Mapping[str, ServedModel] = read_models(root)
    for folder in (path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")):
        named = set(models[folder.name].versions) if folder.name in models else set()
        clear_partials(folder, named)
        unused = set(versions(folder)) - named
        if not unused:
            continue
        states = running_states(Place(folder, options.servers))
        held = {v for known in states.values() for v, state in known.items() if state.state in LOADED}
        for version in sorted(unused - held):
            remove(folder, version)
            options.say(f"model {folder.name}: version {version} removed")
