"""Whether disk and memory hold one version more, asked before anything is written or loaded."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from preprocessing.errors import ArtefactError
from serving.version_files import files_of, size_bytes

__all__ = ["Memory", "available_memory", "check_disk", "copy_bytes", "memory_warning", "model_bytes"]

_DISK_MARGIN = 16 << 20
_MiB = 1 << 20
_CGROUPS = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
_TIGHT = 0.8


def check_disk(store: Path, *, needed_bytes: int, what: str) -> None:
    """Raises ArtefactError if a file system has no room for so many bytes more, and a margin."""
    free = shutil.disk_usage(store).free
    if free < needed_bytes + _DISK_MARGIN:
        raise ArtefactError(
            f"{what} needs {needed_bytes / _MiB:.0f} MiB in {store}, {free / _MiB:.0f} MiB are free; "
            "retire versions (rankmill versions, rankmill retire), or keep fewer: export.retention"
        )


def copy_bytes(export: Path, store: Path) -> int:
    """Returns the bytes that files take when they are brought into a store: none if they are only linked."""
    linked = os.stat(export).st_dev == os.stat(store).st_dev
    return 0 if linked else size_bytes(export)


def model_bytes(version: Path) -> int:
    """Returns about what a loaded version takes: its variables, and its graph and assets."""
    return sum(size for name, size in files_of(version).items() if not name.startswith("assets.extra/"))


@dataclasses.dataclass(frozen=True)
class Memory:
    """How much memory may still be taken, and what sets that bound."""

    available_bytes: int
    bound: str


def available_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> Memory | None:
    """Returns what this machine, or the limit of this container, still has; None where neither is known."""
    bounds = [found for found in (_of_machine(proc), *(_of_group(cgroup, *names) for names in _CGROUPS)) if found]
    return min(bounds, key=lambda memory: memory.available_bytes, default=None)


def _of_machine(proc: Path) -> Memory | None:
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return Memory(int(line.split()[1]) << 10, "the memory of the machine")
    except (OSError, ValueError, IndexError):
        return None
    return None


def _of_group(cgroup: Path, limit_name: str, used_name: str) -> Memory | None:
    try:
        limit, used = ((cgroup / name).read_text().strip() for name in (limit_name, used_name))
        return Memory(max(0, int(limit) - int(used)), f"the memory limit of the container, {int(limit) / _MiB:.0f} MiB")
    except (OSError, ValueError):  # "max" is no limit
        return None


def memory_warning(needed: Mapping[int, int], memory: Memory | None) -> tuple[str, bool]:
    """Returns what is to be said of loading versions beside what runs, "" for nothing, and whether they do not fit.

    Args:
        needed: bytes of each version that is to be loaded.
        memory: as `available_memory` returns it.
    """
    total = sum(needed.values())
    if memory is None or total <= _TIGHT * memory.available_bytes:
        return "", False
    fits = total <= memory.available_bytes
    versions = ", ".join(f"{version} ({size / _MiB:.0f} MiB)" for version, size in sorted(needed.items()))
    text = (
        f"loading version {versions} beside what runs takes about {total / _MiB:.0f} MiB, and "
        f"{memory.available_bytes / _MiB:.0f} MiB are left of {memory.bound}"
    )
    return text, not fits
