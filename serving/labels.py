"""Labels of a model's versions: promote, roll back; what is pinned and served follows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from preprocessing.errors import ArtefactError
from serving import history
from serving.history import Event, labelled_versions, read_events
from serving.memory_check import MemoryCheck, check_memory
from serving.models_config import ServedModel, read_model
from serving.pins import read_pins
from serving.rollout import Place, roll_out
from serving.version_store import version_path, versions

__all__ = ["Label", "labelling", "labels_of", "live_version", "promote", "promote_published", "rollback"]

Label = Literal["stable", "canary"]
STABLE: Label = "stable"
CANARY: Label = "canary"
_LOCK = ".rankmill-labels.lock"
_LOCK_TIMEOUT_S = 900.0


@contextlib.contextmanager
def labelling(place: Place, timeout_s: float = _LOCK_TIMEOUT_S) -> Iterator[None]:
    """Holds the labels of a model: nobody else moves them, and no version is removed by others, meanwhile."""
    if not place.store.is_dir():
        raise ArtefactError(f"{place.store} holds no version; run `rankmill run` first")
    try:
        with FileLock(place.store / _LOCK, timeout=timeout_s):
            yield
    except Timeout as error:
        raise ArtefactError(
            f"labels of {place.store} have been moved by another process for {timeout_s:g} s; try again later"
        ) from error


def labels_of(store: Path) -> dict[str, int]:
    """Returns the labels of a model and their versions."""
    model = read_model(store.parent, store.name)
    return dict(model.labels) if model else {}


def live_version(store: Path) -> int | None:
    """Returns the version labelled stable; in a store without labels, the newest; None if there is no version."""
    found = versions(store)
    stable = labels_of(store).get(STABLE)
    return stable if stable in found else max(found, default=None)


def promote(
    place: Place,
    version: int,
    label: Label = STABLE,
    *,
    why: str,
    memory: MemoryCheck = "refuse",
) -> str:
    """Puts a label on a version, in the steps that servers demand; returns what was done.

    A canary does not stay behind: on a version older than the new stable one, it moves along.

    Raises:
        ArtefactError: if there is no such version, or the memory does not hold it.
        ServingError: if a server does not follow; the labels are where they were.
    """
    version_path(place.store, version)
    with labelling(place):
        return _move(place, {label: version}, Event("promote", version, label, why=why), memory)


def promote_published(place: Place, version: int, label: Label, *, why: str, memory: MemoryCheck = "refuse") -> str:
    """Promotes a version that was just published; returns what was done, or why nothing was.

    One that has been promoted before is left alone: who rolled it back meant it. So is one that is older than what
    another publisher has promoted meanwhile.
    """
    with labelling(place):
        events = read_events(place.store)
        if any(event.version == version and event.action in {"promote", "rollback"} for event in events):
            return ""
        newer = [event.version for event in events if event.action == "promote" and event.label == label]
        if max(newer, default=version) > version:
            return f"version {version} is not labelled: {label} has been on version {max(newer)} since"
        return _move(place, {label: version}, Event("promote", version, label, why=why), memory)


def rollback(place: Place, *, why: str, memory: MemoryCheck = "refuse") -> str:
    """Puts `stable` on the version that had it before; returns what was done.

    Labels on the version that is left go along, so that it is served no more.

    Raises:
        ArtefactError: if no earlier stable version is left.
        ServingError: if a server does not follow; the labels are where they were.
    """
    with labelling(place):
        current = labels_of(place.store).get(STABLE)
        if current is None:
            raise ArtefactError(f"no version in {place.store} is stable; promote one: rankmill promote CONFIG VERSION")
        earlier = previous_stable(place.store, current)
        if earlier is None:
            known = ", ".join(map(str, versions(place.store)))
            raise ArtefactError(
                f"there is no stable version before {current} to go back to; versions that are there: {known}; "
                "promote one of them: rankmill promote CONFIG VERSION"
            )
        moved = {label: earlier for label, version in labels_of(place.store).items() if version == current}
        event = Event("rollback", earlier, STABLE, why=why)
        return _move(place, {**moved, STABLE: earlier}, event, memory)


def previous_stable(store: Path, current: int) -> int | None:
    """Returns the version that a roll-back goes to, or None."""
    stack = labelled_versions(read_events(store), STABLE)
    present = set(versions(store))
    while stack and stack[-1] == current:
        stack.pop()
    return next((version for version in reversed(stack) if version in present and version != current), None)


def served_model(place: Place, labels: Mapping[str, int]) -> ServedModel:
    """Returns what servers are told under these labels: versions labelled, and pinned as served."""
    present = set(versions(place.store))
    pinned = {version for version, pin in read_pins(place.store).items() if pin.served}
    return ServedModel(
        name=place.model,
        base_path=place.store,
        versions=tuple(sorted((set(labels.values()) | pinned) & present)),
        labels={label: version for label, version in labels.items() if version in present},
    )


def _move(place: Place, moved: Mapping[str, int], event: Event, memory: MemoryCheck) -> str:
    before = labels_of(place.store)
    labels = {**before, **moved}
    stable = labels.get(STABLE)
    if stable is not None and event.action == "promote" and event.label == STABLE:
        labels |= {label: stable for label, version in labels.items() if version < stable}
    target = served_model(place, labels)
    check_memory(place, target.versions, mode=memory)
    running = roll_out(place, target)
    label = event.label or STABLE
    history.append(place.store, Event(event.action, event.version, label, before.get(label), event.why))
    return _said(label, before, labels, running)


def _said(label: str, before: Mapping[str, int], labels: Mapping[str, int], running: list[str]) -> str:
    was, now = before.get(label), labels[label]
    origin = "" if was is None else " as before" if was == now else f", was on {was}"
    along = sorted(name for name in labels if name != label and labels[name] != before.get(name))
    moved = "".join(f"; {name} moved along from {before.get(name)}" for name in along)
    served = f"; served by {', '.join(running)}" if running else ""
    return f"{label} is on version {now}{origin}{moved}{served}"
