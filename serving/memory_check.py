"""Whether servers on this machine have the memory to load versions beside what they hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from preprocessing.errors import ArtefactError
from serving.preflight import available_memory, memory_warning, model_bytes
from serving.rollout import Place, running_states
from serving.version_store import version_path

__all__ = ["MemoryCheck", "check_memory"]

MemoryCheck = Literal["refuse", "warn"]
_HERE = ("127.", "localhost", "[::1]", "0.0.0.0")


def check_memory(place: Place, versions: Iterable[int], *, mode: MemoryCheck) -> None:
    """Says or refuses, if what is to be loaded does not fit into the memory of this machine beside what is.

    A swap holds the old and the new versions. Those that a server holds already are part of what is taken. Of servers
    elsewhere nothing is known.

    Raises:
        ArtefactError: if it does not fit and `mode` is "refuse".
    """
    running = running_states(place)
    for address, states in running.items():
        if not address.removeprefix("grpc://").startswith(_HERE):
            continue
        loaded = {version for version, state in states.items() if state.state == "AVAILABLE"}
        needed = {v: model_bytes(version_path(place.store, v)) for v in versions if v not in loaded}
        text, too_much = memory_warning(needed, available_memory())
        if too_much and mode == "refuse":
            raise ArtefactError(
                f"{text}; nothing was changed. Free memory, unpin versions that are served, or go on at your own risk: "
                "--set serve.memory_check=warn"
            )
        if text:
            place.say(f"warning: {text}")
