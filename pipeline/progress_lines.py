"""How a launched process tells the launcher how far it is: a line of JSON after a control character."""

from __future__ import annotations

import json

__all__ = ["LAUNCHER", "parse_progress", "progress_line"]

LAUNCHER = "RANKMILL_LAUNCHER"  # set to the launcher's process id in the environment of launched processes
_MARK = "\x1e"


def progress_line(completed: float, *, note: str | None, total: float | None) -> str:
    """Returns the line, without its end."""
    return _MARK + json.dumps({"completed": completed, "note": note, "total": total})


def parse_progress(line: str) -> tuple[float, str | None, float | None] | None:
    """Returns completed, note and total of such a line; None of any other line."""
    if not line.startswith(_MARK):
        return None
    try:
        value = json.loads(line[len(_MARK) :])
        return float(value["completed"]), value["note"], value["total"]
    except (ValueError, KeyError, TypeError):
        return None
