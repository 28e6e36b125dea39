"""How benchmarks measure: each side in a process of its own, in turn, and the median with its spread."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

_LIBRARIES = ("tensorflow", "tf_keras", "apache-beam", "pyarrow", "numpy")


def run_side(module: str, *arguments: str, python: str = sys.executable) -> dict[str, Any]:
    """Returns the JSON object that `python -m module arguments` prints as its last line."""
    done = subprocess.run([python, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{module} {' '.join(arguments)} failed:\n{done.stderr[-4000:]}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def print_result(result: dict[str, Any]) -> None:
    """Prints the last line of a side."""
    print(json.dumps({**result, "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns minimum, median and maximum."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def machine() -> dict[str, Any]:
    """Returns what figures depend on."""
    cpu = next((line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), "")
    return {
        "cpu": cpu or platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _LIBRARIES},
    }


def _cpuinfo() -> list[str]:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return file.readlines()
    except OSError:
        return []
