"""Versions that are kept whatever retention says, some of them served as well."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from preprocessing.errors import ArtefactError
from preprocessing.manifest import write_json

__all__ = ["Pin", "read_pins", "write_pins"]

PINS = ".rankmill-pins.json"


@dataclasses.dataclass(frozen=True)
class Pin:
    """Why a version is kept, and whether servers keep it loaded too."""

    why: str = ""
    served: bool = False


def read_pins(store: Path) -> dict[int, Pin]:
    """Returns the pins of a model by version.

    Raises:
        ArtefactError: if the file is damaged.
    """
    path = store / PINS
    try:
        return {int(version): Pin(**pin) for version, pin in json.loads(path.read_text(encoding="utf-8")).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}; remove it, and pin again what is to be kept") from error


def write_pins(store: Path, pins: Mapping[int, Pin]) -> None:
    """Replaces the pins of a model."""
    write_json(store / PINS, {str(version): dataclasses.asdict(pin) for version, pin in sorted(pins.items())})
