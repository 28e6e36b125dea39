"""Which periods there are to label, and the key of each: a digest of everything that its labelled rows follow from.

A period's rows follow from its impressions, from the impressions and actions within reach of it (the attribution
window, the look-back for duplicates), from the side tables and from the rules. So a late action or a corrected file
changes the keys of the periods that it can touch, and of no others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from preprocessing.day_rows import ShardTask
from preprocessing.inventory import Log, num_shards
from preprocessing.log_sources import actions_of, longest_window_ms
from preprocessing.manifest import digest
from preprocessing.spec import DataSpec
from preprocessing.splits import period_name

__all__ = ["DayPlan", "Reach", "earlier_periods", "plan_days", "reach_of", "shard_tasks"]

# Raised when a change of our code changes what a labelled period holds.
_FORMAT = 4
_DAY_MS = 86_400_000
# What these say is applied before a period is labelled, or after.
_ELSEWHERE = {"root", "sources", "derived", "freshness", "split", "negative_sampling", "days", "as_of"} | {
    "allowed_lateness_s",
    "max_reject_share",
    "future_tolerance_s",
    "checks",
}


@dataclasses.dataclass(frozen=True)
class DayPlan:
    """A period to be labelled: its number since 1970, its name, its key, and in how many shards it is stored."""

    number: int
    name: str
    key: str
    shards: int


@dataclasses.dataclass(frozen=True)
class Reach:
    """The periods whose rows a set of periods must see.

    Attributes:
        impressions: periods whose impressions could have led to an action that concerns the set.
        actions: of each action log, the periods whose actions can belong to the set.
    """

    impressions: tuple[int, ...]
    actions: dict[str, tuple[int, ...]]


def reach_of(spec: DataSpec, logs: Mapping[str, Log], numbers: Sequence[int]) -> Reach:
    """Returns what must be seen to label some periods."""
    own = logs[spec.impressions].periods
    first, last = min(own[n]["first_ms"] for n in numbers), max(own[n]["last_ms"] for n in numbers)
    window = longest_window_ms(spec)
    actions = {
        action.source: tuple(logs[action.source].overlapping(first, last + window))
        for action in actions_of(spec).values()
    }
    return Reach(tuple(logs[spec.impressions].overlapping(first - window, last + window)), actions)


def earlier_periods(spec: DataSpec, log: Log, number: int) -> list[int]:
    """Returns the periods before `number` in which a duplicate by key of one of its rows may lie."""
    if spec.sources[spec.impressions].duplicates in ("row", "keep") or not spec.duplicate_lookback_days:
        return []
    first = log.periods[number]["first_ms"]
    found = log.overlapping(first - spec.duplicate_lookback_days * _DAY_MS, first - 1)
    return [period for period in found if period < number]


def shard_tasks(spec: DataSpec, log: Log, number: int, shards: int) -> list[ShardTask]:
    """Returns the shards of a period of impressions, and where the rows of each lie."""
    earlier = earlier_periods(spec, log, number)
    # One shard alone has no dictionaries to share with others.
    files = tuple(sorted({path for path, _, _ in log.ranges([number])})) if shards > 1 else ()
    return [
        ShardTask(
            number,
            shard,
            tuple(log.ranges([number], shard=shard, shards=shards)),
            tuple(log.ranges(earlier, shard=shard, shards=shards)),
            files,
        )
        for shard in range(shards)
    ]


def plan_days(
    spec: DataSpec, logs: Mapping[str, Log], *, sides: Mapping[str, Sequence[str]], rows_per_shard: int, as_of_ms: int
) -> list[DayPlan]:
    """Returns the periods with impressions within `spec.days`, in order.

    Args:
        spec: the data section of the config.
        logs: the impressions and the action logs.
        sides: of each side table, the keys of its ingested files.
        rows_per_shard: about the largest number of impressions of a period in one file.
        as_of_ms: the time of the run.
    """
    log = logs[spec.impressions]
    rules = [_FORMAT, _rules(spec), rows_per_shard, {name: list(keys) for name, keys in sides.items()}]
    plans = []
    for number in log.periods:
        if not _within(spec, number):
            continue
        key = digest([*rules, number, _content(spec, logs, number), _time_seen(spec, logs, number, as_of_ms)])
        name = "all" if spec.roles.event_time is None else period_name(number, spec.period)
        plans.append(DayPlan(number, name, key, num_shards(log.periods[number]["rows"], rows_per_shard)))
    return plans


def _rules(spec: DataSpec) -> dict[str, Any]:
    rules = spec.model_dump(mode="json", exclude=_ELSEWHERE)
    used = {spec.impressions, *(join.source for join in spec.joins), *(a.source for a in actions_of(spec).values())}
    rules["sources"] = {
        name: source.model_dump(mode="json", exclude={"paths", "day_partition"})
        for name, source in sorted(spec.sources.items())
        if name in used
    }
    if spec.time_split() is None:
        rules["split"] = spec.split.model_dump(mode="json")
    elif spec.period != "day":  # a period may be cut by the split, or by the range of days
        rules |= {"split": spec.split.model_dump(mode="json"), "days": spec.days.model_dump(mode="json")}
    return rules


def _within(spec: DataSpec, number: int) -> bool:
    """Returns whether a period has a day within the range."""
    if spec.roles.event_time is None:
        return True
    name = period_name(number, spec.period)
    bounds = [None if day is None else str(day)[: len(name)] for day in (spec.days.first, spec.days.last)]
    return (bounds[0] is None or name >= bounds[0]) and (bounds[1] is None or name <= bounds[1])


def _content(spec: DataSpec, logs: Mapping[str, Log], number: int) -> list[Any]:
    log = logs[spec.impressions]
    reach = reach_of(spec, logs, [number])
    seen = sorted({number, *reach.impressions, *(e for n in reach.impressions for e in earlier_periods(spec, log, n))})
    return [log.digest_of(seen), {name: logs[name].digest_of(found) for name, found in sorted(reach.actions.items())}]


def _time_seen(spec: DataSpec, logs: Mapping[str, Log], number: int, as_of_ms: int) -> int | None:
    """Returns the time of the run, or None if it is late enough to make no difference."""
    if spec.roles.event_time is None:
        return None
    log = logs[spec.impressions]
    reach = reach_of(spec, logs, [number])
    last = [log.periods[n]["last_visible_ms"] for n in {number, *reach.impressions}]
    last += [logs[name].periods[n]["last_visible_ms"] for name, found in reach.actions.items() for n in found]
    last.append(log.periods[number]["last_ms"] + longest_window_ms(spec))
    return None if as_of_ms >= max(last) else as_of_ms
