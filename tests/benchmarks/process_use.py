"""What a running process has used so far, read from /proc (Linux)."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_s(pid: int) -> float:
    """Returns the CPU seconds that a process has used, in user and system mode."""
    # The name, in brackets, may hold spaces: what follows it is counted.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """Returns the memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
