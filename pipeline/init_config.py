"""`rankmill init`: a look at a folder of logs, and a config proposed from it.

Files are looked at (`init_sources`), their parts guessed from names and values (`init_roles`), columns become features
or are left out with a reason (`init_columns`, `init_features`, `init_leaks`), days are split (`init_split`), and all of
it is written with what a person should decide beside it (`init_yaml`).
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from pathlib import Path

from pipeline.config import Config, load_config
from pipeline.init_columns import SourceLines, action_lines, impression_lines, side_lines
from pipeline.init_histories import share_item_table
from pipeline.init_roles import Plan, plan_roles
from pipeline.init_sources import Found, find_tables
from pipeline.init_split import propose_split
from pipeline.init_yaml import config_text
from preprocessing.errors import ConfigError, SourceError

__all__ = ["Proposed", "propose_config", "write_config"]


@dataclasses.dataclass(frozen=True)
class Proposed:
    """A config that was not written yet, and what it rests on."""

    text: str
    found: Found
    plan: Plan
    impressions: SourceLines
    sides: tuple[tuple[str, SourceLines], ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def num_features(self) -> int:
        """Number of features, without those of the clock."""
        return len(self.impressions.features) + sum(len(lines.features) for _, lines in self.sides)


def propose_config(data: Path) -> Proposed:
    """Returns a config for a log file, or for a folder with logs and side tables.

    Raises:
        SourceError: if nothing there can be read, or nothing in it could be learned from.
    """
    found = find_tables(data)
    plan = plan_roles(found.tables)
    impressions = impression_lines(plan)
    sides, empty = _sides(plan, impressions)
    sides = share_item_table(plan, impressions, sides)
    actions = [(plan.label.action, action_lines(plan.label.action))] if plan.label.action is not None else []
    unused = [
        (action.table.name, "an action log that makes no label; add one to data.labels if it should")
        for action in plan.actions
        if action is not plan.label.action
    ]
    left_out = (*plan.left_out, *empty, *unused)
    clock = plan.impressions.columns.get(plan.roles.event_time or "")
    split = propose_split(None if clock is None else clock.times_ms, plan.label.values, now_ms=time.time() * 1000)
    if not impressions.features and not any(lines.features for _, lines in sides):
        raise SourceError(
            f"{data}: no column could be a feature; the columns are {', '.join(plan.impressions.columns)}"
        )
    text = config_text(
        name=_name(data),
        root=str(found.root),
        plan=plan,
        impressions=impressions,
        actions=actions,
        sides=sides,
        split=split,
        left_out=left_out,
    )
    return Proposed(text, found, plan, impressions, tuple(sides), left_out)


def _sides(plan: Plan, impressions: SourceLines) -> tuple[list[tuple[str, SourceLines]], list[tuple[str, str]]]:
    """Returns the side tables that make features, by key, and those that make none."""
    taken = dict.fromkeys(impressions.columns, plan.impressions.name)
    sides, empty = [], []
    for side in plan.sides:
        key = next(
            declared
            for declared, line in impressions.columns.items()
            if declared == side.key or (isinstance(line.value, dict) and line.value.get("source_name") == side.key)
        )
        lines = side_lines(side, taken=taken, key=key)
        if lines.features:
            sides.append((key, lines))
            taken.update(dict.fromkeys(lines.columns, side.table.name))
        else:
            empty.append((side.table.name, "none of its columns makes a feature"))
    return sides, empty


def _name(data: Path) -> str:
    stem = data.resolve().stem if data.is_file() else data.resolve().name
    return re.sub(r"[^A-Za-z0-9_-]+", "_", stem).strip("_-") or "ranker"


def write_config(proposed: Proposed, out: Path, *, force: bool) -> Config:
    """Writes a proposed config once it has passed every check of a config, and returns it loaded.

    Raises:
        ConfigError: if the file is there and is not to be replaced, or cannot be written.
    """
    if out.exists() and not force:
        raise ConfigError(f"{out} is there already; give --force to replace it, or --out for another name")
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(proposed.text, encoding="utf-8")
        config = load_config(temporary)
        temporary.replace(out)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return config
