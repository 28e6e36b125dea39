"""Runs side by side: the settings in which they differ, and their figures with intervals."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipeline.pages import page_template, write_text
from pipeline.run_plots import plot_intervals
from preprocessing.errors import ArtefactError, ConfigError

__all__ = ["Comparison", "compared", "show_comparison", "write_comparison"]

METRICS = ("auc", "gauc", "pr_auc", "ndcg", "log_loss", "normalised_entropy", "calibration", "ece", "num_rows")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What was found of runs, by the name of their folder.

    Attributes:
        names: of the runs, as they were given.
        settings: by dotted path, the value of each run, where they differ.
        metrics: by name, the value of each run; None where it is undefined.
        intervals: likewise, the interval of each run; None where it has none.
    """

    names: tuple[str, ...]
    settings: Mapping[str, tuple[str, ...]]
    metrics: Mapping[str, tuple[float | None, ...]]
    intervals: Mapping[str, tuple[tuple[float, float] | None, ...]]


def compared(runs: Sequence[Path], *, split: str) -> Comparison:
    """Returns what differs between runs.

    Raises:
        ConfigError: if fewer than two are given, or the split is none.
        ArtefactError: if a folder is not that of an evaluated run.
    """
    if len(runs) < 2:
        raise ConfigError("compare: give two runs or more")
    configs, figures = [], []
    for run in runs:
        try:
            configs.append(dict(_flat(yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8")))))
            metrics = json.loads((run / "metrics.json").read_bytes())
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise ArtefactError(f"{run} is not the folder of an evaluated run: {error}") from error
        if split not in metrics:
            raise ConfigError(f"--split {split}: {run} has {', '.join(metrics)}")
        figures.append(metrics[split])
    paths = dict.fromkeys(path for config in configs for path in config)
    settings = {path: tuple(config.get(path, "-") for config in configs) for path in paths}
    intervals = [each.get("intervals", {}) for each in figures]
    return Comparison(
        names=tuple(run.resolve().name for run in runs),
        settings={path: values for path, values in settings.items() if len(set(values)) > 1},
        metrics={
            name: tuple(each.get(name) for each in figures)
            for name in METRICS
            if any(each.get(name) is not None for each in figures)
        },
        intervals={name: tuple(_pair(each.get(name)) for each in intervals) for name in METRICS},
    )


def _pair(values: Sequence[float] | None) -> tuple[float, float] | None:
    return None if values is None else (values[0], values[1])


def _flat(tree: Any, path: str = "") -> list[tuple[str, str]]:
    """Returns each leaf of a config by its dotted path; members of a list by their name, else by their place."""
    if isinstance(tree, dict):
        entries = [(f"{path}.{key}" if path else str(key), value) for key, value in tree.items()]
    elif isinstance(tree, list) and any(isinstance(one, dict | list) for one in tree):
        entries = [(f"{path}.{_name(one, place)}", one) for place, one in enumerate(tree)]
    else:
        return [(path, json.dumps(tree, default=str, ensure_ascii=False))]
    return [leaf for inner, value in entries for leaf in _flat(value, inner)]


def _name(member: Any, place: int) -> str:
    return str(member["name"]) if isinstance(member, dict) and "name" in member else str(place)


def show_comparison(found: Comparison, console: Console) -> None:
    """Prints the tables."""
    if found.settings:
        table = Table("setting", *map(escape, found.names))
        for path, values in found.settings.items():
            table.add_row(escape(path), *map(escape, values))
        console.print(table)
    else:
        console.print("the configs are the same")
    table = Table("metric", *map(escape, found.names))
    for name, figures in found.metrics.items():
        table.add_row(name, *(_cell(name, *pair) for pair in zip(figures, found.intervals[name], strict=True)))
    console.print(table)


def _cell(name: str, value: float | None, between: tuple[float, float] | None) -> str:
    if value is None:
        return "-"
    if name == "num_rows":
        return f"{value:,.0f}"
    return f"{value:.4f}" + ("" if between is None else f" [dim]{between[0]:.4f} to {between[1]:.4f}[/]")


def write_comparison(found: Comparison, path: Path) -> None:
    """Writes a page with the tables and a plot of each metric's intervals."""
    plots = {
        name: Markup(plot_intervals(found.names, values, found.intervals[name]))
        for name, values in found.metrics.items()
        if name != "num_rows"
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(page_template("compare.html").render(found=found, plots=plots), path)
