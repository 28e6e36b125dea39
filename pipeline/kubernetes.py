"""What all Kubernetes manifests of ours share: names, quantities, documents in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from preprocessing.errors import ConfigError

__all__ = [
    "Manifest",
    "check_names",
    "check_quantities",
    "kubernetes_name",
    "quantity_value",
    "times",
    "write_documents",
]

Manifest = dict[str, Any]

_DNS_LABEL = re.compile(r"^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$")
_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(m|Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$")
_UNITS = {"m": 1e-3} | {
    f"{letter}{suffix}": base**power
    for suffix, base in (("i", 1024), ("", 1000))
    for power, letter in enumerate("KMGTP" if suffix else "kMGTP", start=1)
}


def kubernetes_name(name: str, role: str) -> str:
    """Returns the name of a line and what it is for, as Kubernetes allows it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") + f"-{role}"


def check_names(names: Mapping[str, str]) -> None:
    """Raises ConfigError for the first value, by what it is, that is no DNS label."""
    for what, value in names.items():
        if not _DNS_LABEL.match(value):
            raise ConfigError(f"{what} {value!r}: small letters, digits and hyphens only, at most 42 of them")


def check_quantities(quantities: Mapping[str, str]) -> None:
    """Raises ConfigError for the first value, by its flag, that is no quantity."""
    for flag, value in quantities.items():
        if not _QUANTITY.match(value):
            raise ConfigError(f"{flag} {value}: not a Kubernetes quantity such as 4, 500m or 16Gi")


def times(quantity: str, count: int) -> str:
    """Returns a quantity multiplied, in its own unit."""
    match = _QUANTITY.match(quantity)
    number, unit = (match[1], match[2] or "") if match else (quantity, "")
    return f"{float(number) * count:g}{unit}"


def quantity_value(quantity: str) -> float:
    """Returns a quantity as a plain number, such as bytes or processors."""
    match = _QUANTITY.match(quantity)
    if match is None:
        raise ConfigError(f"{quantity}: not a Kubernetes quantity such as 4, 500m or 16Gi")
    return float(match[1]) * _UNITS.get(match[2] or "", 1.0)


def write_documents(documents: Sequence[Manifest], path: Path) -> Path:
    """Writes manifests into one file, whose folder is made, and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump_all(documents, sort_keys=False), encoding="utf-8")
    return path
