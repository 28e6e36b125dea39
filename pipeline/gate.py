"""Whether a candidate may go live: bounds on its metrics, each with its verdict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.config import GateRule

__all__ = ["Verdict", "judge"]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One rule, the value it was held against (None where the metric is undefined), and whether it holds."""

    split: str
    metric: str
    value: float | None
    min: float | None
    max: float | None
    passed: bool


def judge(rules: Sequence[GateRule], metrics: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    """Returns a verdict for each rule; a metric without a value passes none."""
    verdicts = []
    for rule in rules:
        value = metrics[rule.split][rule.metric]
        passed = (
            value is not None
            and math.isfinite(value)
            and (rule.min is None or value >= rule.min)
            and (rule.max is None or value <= rule.max)
        )
        verdicts.append(Verdict(rule.split, rule.metric, value, rule.min, rule.max, passed))
    return verdicts
