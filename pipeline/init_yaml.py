"""A proposed config as YAML text with comments on what to decide."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from pipeline.init_columns import Line, SourceLines
from pipeline.init_roles import ActionLog, Plan

__all__ = ["config_text"]

_SHOWN = 8  # candidates


def config_text(
    *,
    name: str,
    root: str,
    plan: Plan,
    impressions: SourceLines,
    actions: Sequence[tuple[ActionLog, SourceLines]],
    sides: Sequence[tuple[str, SourceLines]],
    split: tuple[Mapping[str, Any], str, str],
    left_out: Iterable[tuple[str, str]],
) -> str:
    """Returns the text of a config.

    Args:
        name: of the config.
        root: folder of the sources.
        plan: how the sources belong together.
        impressions: the source of the examples.
        actions: the action log of the label, if there is one.
        sides: of each joined table, the key.
        split: from `propose_split`.
        left_out: sources that are not used, with the reason.
    """
    lines = [
        f"# Proposed by `rankmill init` from a look at {root}: read the comments, decide, then run",
        "#   rankmill preprocess CONFIG",
        f"name: {name}",
        f"work_dir: {_flow(f'work/{name}')}",
        "",
        "data:",
        f"  root: {_flow(root)}",
        "  time_zone: UTC  # of days, hours and the split: whose calendar do users live by?",
        "  sources:",
        *_source(impressions, event_time=None, duplicates=_duplicates(plan)),
    ]
    for action, source in actions:
        lines += _source(source, event_time=action.event_time, arrival_time=action.arrival_time)
    for _, source in sides:
        lines += _source(source, event_time=None)
    lines += [f"    # {table} was left out: {_one_line(reason)}" for table, reason in left_out]
    lines += [f"  impressions: {impressions.table.name}", *_joins(sides), *_roles(plan, impressions), *_label(plan)]
    lines += _split(split, plan)
    lines += [*_reject_share([impressions, *(source for _, source in [*actions, *sides])]), "", "features:"]
    for source in (impressions, *(source for _, source in sides)):
        lines += _features(source)
    lines += _clock_features(plan, impressions, split)
    return "\n".join([*lines, "", *_model(impressions.table.rows, name)]) + "\n"


def _flow(value: object) -> str:
    text = yaml.safe_dump([value], default_flow_style=True, width=math.inf, sort_keys=False, allow_unicode=True)
    return text.strip()[1:-1]


def _one_line(text: str) -> str:
    return re.sub(r"[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff]+", " ", text)


def _with_comment(text: str, comment: str) -> str:
    return f"{text}  # {_one_line(comment)}" if comment else text


def _column(line: Line) -> str:
    value = line.value
    return _flow(value["type"]) if isinstance(value, Mapping) and set(value) == {"type"} else _flow(value)


def _duplicates(plan: Plan) -> list[str] | None:
    row_id = plan.roles.row_id
    column = plan.impressions.columns.get(row_id or "")
    return [row_id] if row_id is not None and column is not None and column.distinct < column.rows else None


def _source(
    source: SourceLines,
    *,
    event_time: str | None,
    arrival_time: str | None = None,
    duplicates: list[str] | None = None,
) -> list[str]:
    table = source.table
    files = "" if table.num_files == 1 else f"{table.num_files} files, "
    lines = [f"    {_flow(table.name)}:  # {files}about {table.rows:,} rows"]
    paths = table.patterns[0] if len(table.patterns) == 1 else list(table.patterns)
    lines.append(f"      paths: {_flow(paths)}")
    optional = {
        "format": table.sample.format if table.sample.declared else None,
        "encoding": table.sample.encoding if table.sample.encoding != "utf-8" else None,
        "duplicates": duplicates,
        "event_time": event_time,
        "arrival_time": arrival_time,
        "day_partition": table.day_partition,
    }
    lines += [f"      {key}: {_flow(value)}" for key, value in optional.items() if value is not None]
    lines.append("      columns:")
    lines += [
        _with_comment(f"        {_flow(key)}: {_column(line)}", line.comment) for key, line in source.columns.items()
    ]
    return lines


def _joins(sides: Sequence[tuple[str, SourceLines]]) -> list[str]:
    if not sides:
        return []
    return ["  joins:", *(f"    - {_flow({'source': source.table.name, 'key': key})}" for key, source in sides)]


def _roles(plan: Plan, impressions: SourceLines) -> list[str]:
    found = {
        role: declared
        for role, name in vars(plan.roles).items()
        if name is not None and (declared := _declared_name(name, impressions)) is not None
    }
    absent = [role for role in ("user", "item", "event_time") if role not in found]
    comment = f"no {' and no '.join(absent)} was recognised: name the columns if there are such" if absent else ""
    return [_with_comment(f"  roles: {_flow(found)}", comment)]


def _declared_name(name: str, source: SourceLines) -> str | None:
    if name in source.columns:
        return name
    for declared, line in source.columns.items():
        if isinstance(line.value, Mapping) and line.value.get("source_name") == name:
            return declared
    return None


def _label(plan: Plan) -> list[str]:
    label = plan.label
    value: dict[str, Any] = {"name": label.name}
    if label.action is not None:
        value["action"] = {"source": label.action.table.name, "key": list(label.action.key), "window_s": 86400}
    elif label.column is not None:
        value["column"] = label.column
    else:
        value["when"] = label.when
    lines = ["  labels:"]
    if label.others:
        shown = [*label.others[:_SHOWN], *(["..."] if len(label.others) > _SHOWN else [])]
        lines.append(_one_line(f"    # what shall be predicted? other candidates: {', '.join(shown)}"))
    note = "window_s: seconds after the impression in which an action counts" if label.action is not None else ""
    return [*lines, _with_comment(f"    - {_flow(value)}", note)]


def _split(split: tuple[Mapping[str, Any], str, str], plan: Plan) -> list[str]:
    value, period, comment = split
    lines = [_with_comment(f"  split: {_flow(dict(value))}", comment)]
    if period != "day" and plan.roles.event_time is not None:
        lines.insert(0, f"  period: {period}  # rows are stored by it: the days are many and hold few rows")
    return lines


def _reject_share(sources: Sequence[SourceLines]) -> list[str]:
    worst = max(_bad_share(source) for source in sources)
    if worst <= 0.002:
        return []
    share = min(0.5, max(0.02, math.ceil(worst * 300) / 100))
    return [
        f"  max_reject_share: {share}  # {worst:.1%} of the rows looked at cannot be used: more than this stops the run"
    ]


def _bad_share(source: SourceLines) -> float:
    sample = source.table.sample
    invalid = sum(column.invalid_share for column in source.table.columns.values() if column.type == "timestamp")
    return invalid + sample.malformed / max(1, sample.malformed + sample.num_rows)


def _features(source: SourceLines) -> list[str]:
    lines = [f"  # {source.table.name}"] if source.features or source.left_out else []
    lines += [_with_comment(f"  - {_flow(line.value)}", line.comment) for line in source.features]
    return lines + [_one_line(f"  # left out: {name}: {reason}") for name, reason in source.left_out]


def _clock_features(plan: Plan, impressions: SourceLines, split: tuple[Mapping[str, Any], str, str]) -> list[str]:
    clock = plan.roles.event_time and _declared_name(plan.roles.event_time, impressions)
    if clock is None or plan.impressions.columns[plan.roles.event_time or ""].date_only:
        return []
    taken = {line.value.get("name") for line in impressions.features if isinstance(line.value, Mapping)}
    made = (("hour", "hour_of_day"), ("weekday", "day_of_week"))
    return [f"  - {_flow({'name': name, 'kind': kind, 'column': clock})}" for name, kind in made if name not in taken]


def _model(rows: int, name: str) -> list[str]:
    batch = 256 if rows < 50_000 else 1024 if rows < 2_000_000 else 4096
    return [
        "model: {kind: deepfm, embedding_dim: 8, hidden_units: [64, 32]}",
        "",
        "train:",
        f"  batch_size: {batch}",
        "  epochs: 3",
        "  early_stopping: {metric: auc, patience: 1}",
        "",
        "# What a model must reach to be published; look at the first run's metrics, then decide:",
        "# gate:",
        "#   - {split: test, metric: auc, min: 0.70}",
        "",
        f"export: {{model_name: {name}}}",
    ]
