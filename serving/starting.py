"""Servers that were started and do not listen yet: what they have read of `models.config` may be old by then.

A server opens its ports after its first load. Who moves a label meanwhile would take it for absent, and it would then
refuse a label on a version that it has not loaded. So `rankmill serve` leaves a note of the process that it becomes.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from preprocessing.manifest import write_json

__all__ = ["is_starting", "note_start"]


def note_start(root: Path, address: str) -> None:
    """Notes that this process is to become the server at an address."""
    write_json(_path(root, address), {"pid": os.getpid(), "start": _start_of(os.getpid())})


def is_starting(root: Path, address: str) -> bool:
    """Returns whether the process that was to become the server at an address is alive on this machine."""
    try:
        noted = json.loads(_path(root, address).read_text(encoding="utf-8"))
        return noted["start"] is not None and noted["start"] == _start_of(int(noted["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _path(root: Path, address: str) -> Path:
    return root / f".rankmill-server-{re.sub(r'[^A-Za-z0-9.]+', '-', address)}.json"


def _start_of(pid: int) -> str | None:
    """Returns what tells a process from a later one of the same number; None where it is not to be had."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
