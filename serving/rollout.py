"""From one set of served versions and labels to another, without a moment in which a label leads nowhere.

A server refuses to move a label to a version that is not AVAILABLE, and it takes whole configs. So there are three of
them: the old and the new versions with the labels as they are; the same versions with the labels moved; the new
versions alone. Between them all running servers are waited for.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from preprocessing.errors import ServingError
from serving.models_config import ServedModel, read_model, remove_model, write_model
from serving.server.discovery import list_versions
from serving.server_status import States, ask_label, ask_versions
from serving.server_wait import Patience, wait_for_labels, wait_for_versions
from serving.starting import is_starting

__all__ = ["Place", "roll_out", "running_states"]

_TICK_S = 0.1


@dataclasses.dataclass(frozen=True)
class Place:
    """A model in a store, and the servers that serve it.

    Attributes:
        store: folder of the model's versions; its parent holds `models.config`, its name is the model's.
        servers: addresses, as `server_status` takes them.
        poll_s: how often the servers read `models.config`.
        load_timeout_s: how long a version may take to load.
        say: is told of each step.
    """

    store: Path
    servers: tuple[str, ...] = ()
    poll_s: float = 5.0
    load_timeout_s: float = 300.0
    say: Callable[[str], None] = lambda _: None

    @property
    def patience(self) -> Patience:
        """How long the servers are waited for."""
        return Patience(poll_s=self.poll_s, load_timeout_s=self.load_timeout_s, say=self.say)

    @property
    def root(self) -> Path:
        """The folder of `models.config`."""
        return self.store.parent

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.store.name


def running_states(place: Place) -> dict[str, States]:
    """Returns what each running server says of the model's versions, by address.

    Raises:
        ServingError: if an address is neither free nor that of a model server.
    """
    found = {address: ask_versions(address, place.model) for address in place.servers}
    return {address: states for address, states in found.items() if states is not None}


def roll_out(place: Place, target: ServedModel) -> list[str]:
    """Brings the servers to the target; returns the addresses of those that run.

    Raises:
        ServingError: if a server does not load a version or move a label in time. The labels are where they were.
        ArtefactError: if `models.config` cannot be read or written.
    """
    _wait_for_starting(place)
    before = read_model(place.root, place.model)
    running = running_states(place)
    if not running or not target.versions:
        _write(place, target)
        _say_final(place, running)
        return list(running)
    present = set(list_versions(place.store))
    held = _labels_in_force(place, running, before, present)
    kept = present & {*held.values(), *(before.versions if before else ())}
    both = dataclasses.replace(target, versions=tuple(sorted(kept | set(target.versions))), labels=held)
    write_model(place.root, both)
    try:
        serving = wait_for_versions(running, place.model, target.versions, patience=place.patience)
    except BaseException as error:
        _write(place, before)
        raise _left(held, error) from error
    try:
        write_model(place.root, dataclasses.replace(both, labels=target.labels))
        wait_for_labels(serving, place.model, target.labels, patience=place.patience)
    except BaseException as error:
        write_model(place.root, both)
        raise _left(held, error) from error
    write_model(place.root, target)
    return serving


def _wait_for_starting(place: Place) -> None:
    deadline = time.monotonic() + place.load_timeout_s
    for address in place.servers:
        if is_starting(place.root, address) and ask_versions(address, place.model) is None:
            place.say(f"the server at {address} is starting: it is waited for")
            while is_starting(place.root, address) and ask_versions(address, place.model) is None:
                if time.monotonic() > deadline:
                    raise ServingError(f"the server at {address} was started and does not listen; its output says why")
                time.sleep(_TICK_S)


def _write(place: Place, model: ServedModel | None) -> None:
    if model is None or not model.versions:
        remove_model(place.root, place.model)
    else:
        write_model(place.root, model)


def _say_final(place: Place, running: Mapping[str, States]) -> None:
    if not running:
        where = " or ".join(place.servers) or "any address"
        place.say(f"no server runs at {where}: one that starts will read this from {place.root / 'models.config'}")


def _left(held: Mapping[str, int], error: BaseException) -> BaseException:
    if not isinstance(error, ServingError):
        return error
    labels = ", ".join(f"{label} stays on version {version}" for label, version in sorted(held.items()))
    return ServingError(f"{error}; nothing was changed: {labels or 'no label is set'}")


def _labels_in_force(
    place: Place, running: Iterable[str], before: ServedModel | None, present: Collection[int]
) -> dict[str, int]:
    """Returns the labels as a server has them: it may have refused what the file says, if it had just started."""
    labels = dict(before.labels) if before else {}
    for label in labels:
        found = [ask_label(address, place.model, label) for address in running]
        known = [version for version in found if version is not None and version in present]
        if known and labels[label] not in known:
            labels[label] = known[0]
    return {label: version for label, version in labels.items() if version in present}
