"""Waiting for running servers: until they serve versions, until they have moved labels."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from preprocessing.errors import ServingError
from serving.server_status import States, VersionState, ask_label, ask_versions

__all__ = ["Patience", "wait_for_labels", "wait_for_versions"]

_TICK_S = 0.1
_SLACK_S = 5.0


@dataclasses.dataclass(frozen=True)
class Patience:
    """How long to wait: servers read a config every `poll_s`, and a version loads within `load_timeout_s`."""

    poll_s: float
    load_timeout_s: float
    say: Callable[[str], None]

    @property
    def notice_s(self) -> float:
        """Seconds within which a server has begun to do what a config says."""
        return 3 * self.poll_s + _SLACK_S


def wait_for_versions(
    first: Mapping[str, States], model: str, versions: Iterable[int], *, patience: Patience
) -> list[str]:
    """Returns the servers that still run, once they serve all versions; one that does not know the model is left out.

    Args:
        first: what each server said before it was told of the versions.
        model: its name.
        versions: to be AVAILABLE.
        patience: how long to wait.

    Raises:
        ServingError: if a version fails to load, does not begin to, or takes too long.
    """
    wanted, start, serving = set(versions), time.monotonic(), []
    for address, states in first.items():
        _say_loading(address, _missing(states, wanted), patience)
    for address in first:
        if _wait_for_one(address, model, wanted, before=first[address], start=start, patience=patience):
            serving.append(address)
    return serving


def _wait_for_one(
    address: str, model: str, wanted: Collection[int], *, before: States, start: float, patience: Patience
) -> bool:
    while True:
        waited_s = time.monotonic() - start
        late = waited_s > patience.notice_s
        states = ask_versions(address, model)
        if states is None:
            patience.say(f"the server at {address} has ended")
            return False
        if not states and late:
            patience.say(f"the server at {address} does not know model {model}: it does not read this store")
            return False
        missing = _missing(states, wanted)
        if not missing:
            return True
        for version in missing:
            _check_progress(address, version, states.get(version), before=before.get(version), late=late)
        if waited_s > patience.load_timeout_s:
            raise ServingError(
                f"version {_listed(missing)} was not AVAILABLE at {address} within {patience.load_timeout_s:g} s; "
                "the server's log says why; serve.load_timeout_s is how long a load may take"
            )
        time.sleep(_TICK_S)


def _missing(states: States, wanted: Collection[int]) -> list[int]:
    return sorted(version for version in wanted if version not in states or states[version].state != "AVAILABLE")


def _say_loading(address: str, versions: list[int], patience: Patience) -> None:
    if versions:
        patience.say(f"{address} is to load version {_listed(versions)}")


def _check_progress(
    address: str, version: int, state: VersionState | None, *, before: VersionState | None, late: bool
) -> None:
    """Raises ServingError if a version has failed, or nobody has begun to load it.

    A server remembers how versions ended before: that counts only when it had time to begin anew.
    """
    if state is not None and state.error and (late or state != before):
        raise ServingError(f"the server at {address} could not load version {version}: {state.error}")
    if late and (state is None or state.state == "END"):
        raise ServingError(
            f"the server at {address} has not begun to load version {version}: does it read this store's models.config "
            "again and again, as one started by `rankmill serve` does? serve.servers says which servers to wait for"
        )


def _listed(versions: Iterable[int]) -> str:
    return ", ".join(map(str, versions))


def wait_for_labels(addresses: Iterable[str], model: str, labels: Mapping[str, int], *, patience: Patience) -> None:
    """Returns when each running server follows the labels.

    Raises:
        ServingError: if one does not in time.
    """
    deadline = time.monotonic() + patience.notice_s + _SLACK_S
    for address in addresses:
        for label, version in labels.items():
            while ask_label(address, model, label) != version:
                if ask_versions(address, model) is None:
                    break  # it ended; the next one reads the config as it starts
                if time.monotonic() > deadline:
                    raise ServingError(f"the server at {address} did not move {label} to version {version} in time")
                time.sleep(_TICK_S)
