"""Pinning and removing versions: by hand, or as retention says; never one that is in use."""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from preprocessing.errors import ArtefactError, ServingError
from serving import history
from serving.config import RetentionSpec
from serving.history import Event, published_at, read_events
from serving.labels import STABLE, labelling, labels_of, previous_stable, served_model
from serving.memory_check import MemoryCheck, check_memory
from serving.models_config import MODELS_FILE, read_model
from serving.pins import Pin, read_pins, write_pins
from serving.retention import versions_to_remove
from serving.rollout import Place, roll_out, running_states
from serving.server_status import LOADED
from serving.version_files import size_bytes
from serving.version_store import read_metadata, remove, version_path, versions

__all__ = ["VersionInfo", "expire", "list_infos", "pin", "retire", "unpin"]

_TICK_S = 0.1


def retire(place: Place, version: int, *, why: str) -> str:
    """Removes a version; returns what was done.

    Raises:
        ArtefactError: if it is not there, or in use.
    """
    version_path(place.store, version)
    with labelling(place):
        labels = labels_of(place.store)
        _check_not_held(place, version, labels)
        model = read_model(place.root, place.model)
        if model is not None and version in model.versions:  # left by a move that was broken off
            roll_out(place, served_model(place, labels))
        _wait_until_unloaded(place, version)
        freed = size_bytes(version_path(place.store, version))
        remove(place.store, version)
        history.append(place.store, Event("retire", version, why=why))
    return f"version {version} is removed, {freed / (1 << 20):.1f} MiB"


def _check_not_held(place: Place, version: int, labels: Mapping[str, int]) -> None:
    held_by = sorted(label for label, labelled in labels.items() if labelled == version)
    if held_by:
        other = next((v for v in reversed(versions(place.store)) if v != version), "VERSION")
        raise ArtefactError(
            f"version {version} is {' and '.join(held_by)}: it is not removed; move the label first: "
            f"rankmill promote CONFIG {other} --label {held_by[0]} --why ..."
        )
    if version in read_pins(place.store):
        raise ArtefactError(
            f"version {version} is pinned: it is not removed; unpin it first: rankmill unpin CONFIG {version}"
        )


def _wait_until_unloaded(place: Place, version: int) -> None:
    deadline = time.monotonic() + place.patience.notice_s
    while address := _loaded(place).get(version):
        if time.monotonic() > deadline:
            raise ArtefactError(
                f"version {version} is still loaded at {address}: it is not removed; does that server read "
                f"{place.root / MODELS_FILE}?"
            )
        time.sleep(_TICK_S)


def expire(place: Place, policy: RetentionSpec) -> list[int]:
    """Removes what retention no longer keeps; returns those versions.

    What is live at a server, labelled, pinned, the newest, or the one to roll back to stays.
    """
    with labelling(place):
        dates = _published(place.store)
        goners = versions_to_remove(dates, policy, in_use=_in_use(place), now=dt.datetime.now(dt.UTC))
        for version in goners:
            remove(place.store, version)
            why = f"older than {policy.keep_days:g} days and not among the newest {policy.keep_last}"
            history.append(place.store, Event("expire", version, why=why))
    return goners


def _in_use(place: Place) -> set[int]:
    labels = labels_of(place.store)
    used = {*labels.values(), *read_pins(place.store), *_loaded(place)}
    model = read_model(place.root, place.model)
    used |= set(model.versions) if model else set()
    if STABLE in labels:
        earlier = previous_stable(place.store, labels[STABLE])
        used |= set() if earlier is None else {earlier}
    return used


def _loaded(place: Place) -> dict[int, str]:
    """Returns the versions that a running server holds, and where."""
    return {
        version: address
        for address, states in running_states(place).items()
        for version, state in states.items()
        if state.state in LOADED
    }


def _published(store: Path) -> dict[int, dt.datetime]:
    """Returns when each version that is there was published; one put there by others, when its folder changed."""
    said = published_at(read_events(store))
    return {
        version: said.get(version) or dt.datetime.fromtimestamp(version_path(store, version).stat().st_mtime, tz=dt.UTC)
        for version in versions(store)
    }


def pin(place: Place, version: int, *, served: bool, why: str, memory: MemoryCheck = "refuse") -> str:
    """Keeps a version whatever retention says, and loaded as well if `served`; returns what was done."""
    version_path(place.store, version)
    with labelling(place):
        pins = read_pins(place.store)
        was = pins.get(version)
        if served:
            check_memory(place, [version], mode=memory)
        write_pins(place.store, {**pins, version: Pin(why, served)})
        try:
            if served or (was is not None and was.served):
                roll_out(place, served_model(place, labels_of(place.store)))
        except BaseException:
            write_pins(place.store, pins)
            raise
        history.append(place.store, Event("pin", version, why=why))
    return f"version {version} is pinned{' and served' if served else ''}"


def unpin(place: Place, version: int, *, why: str) -> str:
    """Lets retention decide about a version again; returns what was done.

    Raises:
        ArtefactError: if it is not pinned.
    """
    with labelling(place):
        pins = read_pins(place.store)
        if version not in pins:
            known = ", ".join(map(str, sorted(pins))) or "none"
            raise ArtefactError(f"version {version} is not pinned; pinned are: {known}")
        write_pins(place.store, {other: pins[other] for other in pins if other != version})
        if pins[version].served:
            roll_out(place, served_model(place, labels_of(place.store)))
        history.append(place.store, Event("unpin", version, why=why))
    return f"version {version} is pinned no more"


@dataclasses.dataclass(frozen=True)
class VersionInfo:
    """All that is known of a version; `servers` have it loaded."""

    version: int
    labels: tuple[str, ...]
    pin: Pin | None
    published: dt.datetime
    size_bytes: int
    metadata: dict[str, Any]
    who: str
    why: str
    servers: tuple[str, ...]


def list_infos(place: Place) -> list[VersionInfo]:
    """Returns the versions of a model, newest first."""
    labels, pins, dates = labels_of(place.store), read_pins(place.store), _published(place.store)
    try:
        states = running_states(place)
    except ServingError as error:  # the list is worth having all the same
        place.say(str(error))
        states = {}
    events = {event.version: event for event in read_events(place.store) if event.action == "publish"}
    moves = {event.version: event for event in read_events(place.store) if event.action in {"promote", "rollback"}}
    infos = []
    for version in sorted(dates, reverse=True):
        try:
            metadata = read_metadata(place.store, version)
        except ArtefactError:  # put there by others
            metadata = {}
        event = moves.get(version) or events.get(version)
        infos.append(
            VersionInfo(
                version=version,
                labels=tuple(sorted(label for label, labelled in labels.items() if labelled == version)),
                pin=pins.get(version),
                published=dates[version],
                size_bytes=size_bytes(version_path(place.store, version)),
                metadata=metadata,
                who=event.who if event else "",
                why=event.why if event else "",
                servers=tuple(a for a, known in states.items() if version in known and known[version].state in LOADED),
            )
        )
    return infos
