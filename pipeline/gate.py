"""Whether a candidate may go live: each rule with its value, its bound and its verdict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.evaluate_spec import MEASURED, OF_MODEL, GateRule
from preprocessing.errors import RankmillError

__all__ = ["Compared", "Measured", "Verdict", "judge"]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One rule: what it is about, the value (None if undefined), the bound as text, whether it holds, and why not."""

    rule: str
    value: float | None
    bound: str
    passed: bool
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Measured:
    """A figure that was measured for a rule, and what there is to say of it."""

    value: float
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Compared:
    """A figure of both models; `loss` is how much worse the candidate may be at the confidence asked for."""

    candidate: float
    live: float
    loss: float


def judge(
    rules: Sequence[GateRule],
    metrics: Mapping[str, Mapping[str, Any]],
    *,
    measure: Callable[[GateRule], Measured],
    compare: Callable[[GateRule], Compared] | str,
) -> list[Verdict]:
    """Returns a verdict for each rule; a metric without a value passes none.

    Args:
        rules: of the config.
        metrics: of the candidate, by split; slices are below "slices".
        measure: returns a figure that is measured only if a rule asks for it, such as size or latency.
        compare: holds the candidate against the live model; or why there is nothing to compare: such rules pass.
    """
    return [_bounded(rule, metrics, measure) if rule.against is None else _compared(rule, compare) for rule in rules]


def _bounded(
    rule: GateRule, metrics: Mapping[str, Mapping[str, Any]], measure: Callable[[GateRule], Measured]
) -> Verdict:
    bounds = {"min": rule.min, "max": rule.max}
    bound = ", ".join(f"{name} {value:g}" for name, value in bounds.items() if value is not None)
    figures = metrics[rule.split]
    if rule.label is not None:
        figures = figures.get("labels", {}).get(rule.label, figures)  # one label alone is not listed by name
    if rule.slice is not None:
        known = figures.get("slices", {})
        if rule.slice not in known:
            return Verdict(_title(rule), None, bound, passed=False, note=f"no such slice; there are {', '.join(known)}")
        figures = known[rule.slice]
    if rule.metric in MEASURED:
        measured = measure(rule)
        return Verdict(_title(rule), measured.value, bound, _within(measured.value, rule), measured.note)
    value = figures.get(rule.metric)
    if value is None or not math.isfinite(value):
        return Verdict(_title(rule), value, bound, passed=False, note="undefined: one class only, or no rows")
    return Verdict(_title(rule), value, bound, _within(value, rule))


def _within(value: float, rule: GateRule) -> bool:
    return (rule.min is None or value >= rule.min) and (rule.max is None or value <= rule.max)


def _compared(rule: GateRule, compare: Callable[[GateRule], Compared] | str) -> Verdict:
    bound = f"at most {rule.margin:g} worse than live"
    if isinstance(compare, str):
        return Verdict(_title(rule), None, bound, passed=True, note=compare)
    try:
        found = compare(rule)
    except RankmillError as error:
        return Verdict(_title(rule), None, bound, passed=False, note=f"cannot be compared: {error}")
    passed = found.loss <= rule.margin  # of an undefined one too: NaN is within no margin
    sure = "" if rule.metric in MEASURED else f" at {rule.confidence:.0%} confidence"
    note = f"live {found.live:.4g}; worse by {found.loss:.2g} at most{sure}"
    return Verdict(_title(rule), found.candidate, bound, passed, note)


def _title(rule: GateRule) -> str:
    part = ("" if rule.label is None else f" of {rule.label}") + ("" if rule.slice is None else f" [{rule.slice}]")
    return rule.metric if rule.metric in OF_MODEL else f"{rule.split} {rule.metric}{part}"
