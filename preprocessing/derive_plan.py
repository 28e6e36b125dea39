"""The chain of periods that point-in-time columns are made along: each goes on from the state after the one before.

A period's key follows from the key of the one before, so what changes on a day changes the days after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from preprocessing.day_plan import DayPlan
from preprocessing.inventory import Log
from preprocessing.manifest import digest
from preprocessing.periods import period_start_ms
from preprocessing.point_in_time import context_ms
from preprocessing.spec import DataSpec, DerivedColumn

__all__ = ["Link", "context_of", "key_sets", "plan_derived"]

# Raised when a change of our code changes what a period or a state holds.
_FORMAT = 1
_BEFORE_ALL, _AFTER_ALL = -(2**62), 2**62


@dataclasses.dataclass(frozen=True)
class Link:
    """A period of the chain.

    Attributes:
        number: periods since 1970.
        key: digest of everything that its columns and the state after it follow from.
        before: key of the period before; None for the first.
        days_key: key of its labelled rows.
        files: of its labelled rows, (part, file, rows).
        start_ms: when it begins.
        end_ms: when it ends: what the state after it has seen became known before.
        last_known_ms: when the last of its rows and labels became known.
    """

    number: int
    key: str
    before: str | None
    days_key: str
    files: tuple[tuple[str, str, int], ...]
    start_ms: int
    end_ms: int
    last_known_ms: int


def plan_derived(
    spec: DataSpec, plans: Sequence[DayPlan], contents: Sequence[Mapping[str, Any]], log: Log
) -> list[Link]:
    """Returns the chain of all periods, in order.

    Args:
        spec: the data section of the config.
        plans: the labelled periods, in order.
        contents: of each, the content of its manifest.
        log: the ingested impressions.
    """
    rules = [_FORMAT, [one.model_dump(mode="json") for one in spec.derived], spec.freshness]
    chain: list[Link] = []
    before: str | None = None
    for plan, content in zip(plans, contents, strict=True):
        key = digest([*rules, plan.key, before])
        start, end = _span(spec, plan.number)
        files = tuple((part, name, rows) for part, name, rows in content["files"])
        last = max(content["last_known_ms"], log.periods[plan.number]["last_visible_ms"])
        chain.append(Link(plan.number, key, before, plan.key, files, start, end, last))
        before = key
    return chain


def _span(spec: DataSpec, number: int) -> tuple[int, int]:
    if spec.roles.event_time is None:
        return _BEFORE_ALL, _AFTER_ALL
    start, end = (period_start_ms(n, spec.period, time_zone=spec.time_zone) for n in (number, number + 1))
    return start, end


def key_sets(spec: DataSpec) -> dict[tuple[str, ...], list[DerivedColumn]]:
    """Returns the derived columns by the key that they look at, both in the order of the config."""
    sets: dict[tuple[str, ...], list[DerivedColumn]] = {}
    for one in spec.derived:
        sets.setdefault(one.key, []).append(one)
    return sets


def context_of(spec: DataSpec, chain: Sequence[Link], first: Link) -> list[Link]:
    """Returns the periods before `first` with rows or labels that became known too late for the state before it.

    Those within the longest window before it are among them: a state has no finite windows.
    """
    earlier = [link for link in chain if link.number < first.number]
    if not earlier:
        return []
    since = earlier[-1].end_ms - context_ms(spec.derived)
    return [link for link in earlier if link.last_known_ms >= since]
