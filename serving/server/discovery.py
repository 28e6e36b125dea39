"""Which versions lie under a base path, and which of them a policy wants: plain functions."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

__all__ = ["ModelConfig", "Policy", "aspired_versions", "list_versions", "parse_version", "wanted_versions"]

_log = logging.getLogger(__name__)
_NUMBER = re.compile(r"[+-]?[0-9]+")


@dataclasses.dataclass(frozen=True)
class Policy:
    """Which versions of a model are served.

    `num_versions` is of `latest` (0 means 1), `versions` of `specific`.
    """

    kind: Literal["latest", "all", "specific"] = "latest"
    num_versions: int = 1
    versions: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """A model to serve: where its versions are, which of them, and the labels on them."""

    name: str
    base_path: Path
    platform: str = "tensorflow"
    policy: Policy = Policy()
    labels: Mapping[str, int] = dataclasses.field(default_factory=dict)


def parse_version(name: str) -> int | None:
    """Returns the version that a folder name stands for: a signed 64-bit decimal, or None."""
    if not _NUMBER.fullmatch(name):
        return None
    number = int(name) if len(name) < 100 else 2**63
    return number if -(2**63) <= number < 2**63 else None


def list_versions(base_path: Path) -> dict[int, Path]:
    """Returns the versions under `base_path` with their paths.

    Raises:
        OSError: if the folder cannot be listed.
    """
    found: dict[int, Path] = {}
    for name in sorted(os.listdir(base_path)):
        version = parse_version(name)
        if version is None:
            continue
        if version in found:
            _log.warning(
                "%s: %r and %r are the same version; the first is served", base_path, found[version].name, name
            )
            continue
        found[version] = base_path / name
    return found


def wanted_versions(available: Iterable[int], policy: Policy) -> list[int]:
    """Returns the versions that `policy` wants among those available, newest first."""
    ordered = sorted(available, reverse=True)
    if policy.kind == "all":
        return ordered
    if policy.kind == "latest":
        return ordered[: max(1, policy.num_versions)]
    return [version for version in ordered if version in set(policy.versions)]


def aspired_versions(config: ModelConfig) -> dict[int, Path]:
    """Returns the versions of a model that should be served, with their paths.

    Raises:
        OSError: if the base path cannot be listed.
    """
    if config.policy.kind == "specific":
        probed = {version: config.base_path / str(version) for version in config.policy.versions}
        if probed and all(path.exists() for path in probed.values()):
            return probed
    available = list_versions(config.base_path)
    wanted = wanted_versions(available, config.policy)
    for version in set(config.policy.versions) - set(wanted):
        _log.warning("model %s: version %d is configured but not under %s", config.name, version, config.base_path)
    if not wanted:
        _log.warning("No versions of servable %s found under base path %s", config.name, config.base_path)
    return {version: available[version] for version in wanted}
