"""A line small enough to run within a test: logs with a rule to find, their config, and the command in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import io
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from pipeline.__main__ import main
from tests.pipeline.configs import tiny_tree, write_config

DAY_MS = 86_400_000
T0 = int(dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp() * 1000)
NUM_DAYS, ROWS_PER_DAY = 5, 120


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a command printed and its exit code."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return self.out.splitlines()[-1]


def rankmill(*arguments: object) -> Outcome:
    """Runs the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with (
        mock.patch.object(sys, "argv", ["rankmill", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


def write_logs(root: Path, *, num_days: int = NUM_DAYS, rows_per_day: int = ROWS_PER_DAY) -> None:
    """Writes log.csv, in which items of even number are clicked more, and items.csv."""
    random = np.random.default_rng(3)
    root.mkdir(parents=True, exist_ok=True)
    lines = ["user,item,clicked,price,seen_at"]
    for row in range(num_days * rows_per_day):
        item = int(random.integers(0, 12))
        clicked = int(random.random() < (0.7 if item % 2 == 0 else 0.2))
        price = "" if row % 17 == 0 else f"{random.lognormal():.2f}"
        time_ms = T0 + row // rows_per_day * DAY_MS + row % rows_per_day * 1000
        lines.append(f"u{random.integers(0, 30)},i{item},{clicked},{price},{time_ms}")
    root.joinpath("log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    items = "".join(f"i{item},c{item % 3}\n" for item in range(11))
    root.joinpath("items.csv").write_text("item,category\n" + items, encoding="utf-8")


def tiny_line(root: Path, **changes: Any) -> Path:
    """Writes logs and a config of a whole line below `root`; returns the config's path."""
    write_logs(root / "logs")
    tree = {**tiny_tree(), "work_dir": str(root / "work"), "preprocess": {"workers": 1}, **changes}
    tree["data"]["root"] = str(root / "logs")
    return write_config(root, tree)


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Returns the size and the time of change of every file but locks and the cache of fingerprints."""
    found = {str(path.relative_to(folder)): path.stat() for path in folder.rglob("*") if path.is_file()}
    return {
        name: (stat.st_size, stat.st_mtime_ns)
        for name, stat in found.items()
        if not name.endswith(".lock") and not name.startswith("runs/") and name != "fingerprints.json"
    }
