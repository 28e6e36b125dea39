"""What workers tell of their elements, by files: a result each, under a name of the element's own.

Gathering them in the graph would cost more than most of these jobs do, since each step of a graph takes a twentieth of
a second to build. A repeated attempt writes the same file again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from preprocessing.manifest import write_json

__all__ = ["all_results", "put_result"]


def put_result(folder: str | Path, name: str, value: object) -> None:
    """Notes what became of an element; `name` must be a file name that no other element of the job has."""
    write_json(Path(folder) / f"{name}.json", value)


def all_results(folder: Path) -> list[Any]:
    """Returns all results of a finished job, by name."""
    return [json.loads(path.read_bytes()) for path in sorted(folder.glob("[!.]*.json"))]
