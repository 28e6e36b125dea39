"""Whether a candidate may go live: bounds on its metrics, each with its verdict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from pipeline.config import GateRule

__all__ = ["Verdict", "judge"]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One rule, the value it was held against, and whether it holds."""

    split: str
    metric: str
    value: float
    min: float | None
    max: float | None
    passed: bool


def judge(rules: Sequence[GateRule], metrics: Mapping[str, Mapping[str, float]]) -> list[Verdict]:
    """Returns a verdict for each rule; a value that is not finite passes none."""
    verdicts = []
    for rule in rules:
        value = float(metrics[rule.split][rule.metric])
        passed = (
            math.isfinite(value) and (rule.min is None or value >= rule.min) and (rule.max is None or value <= rule.max)
        )
        verdicts.append(Verdict(rule.split, rule.metric, value, rule.min, rule.max, passed))
    return verdicts
