"""Where a training run stands, apart from its weights: a value that is stored with every checkpoint."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from pipeline.plateau import Plateau
from pipeline.train_spec import EarlyStoppingSpec, PlateauRate, RateSchedule

__all__ = ["HIGHER_IS_BETTER", "TrainState", "state_of"]

HIGHER_IS_BETTER = frozenset({"auc"})


@dataclasses.dataclass(frozen=True)
class TrainState:
    """The state after `step` steps.

    Attributes:
        step: steps done; data position and learning rate follow from it.
        loss_sum: sum of the losses of the steps since the last evaluation.
        loss_steps: how many those are.
        best_step: the evaluation with the best weights.
        best_value: its figure.
        worse_evaluations: evaluations since then.
        stopped_early: whether they were too many.
        evaluations: step, mean loss and metrics of each evaluation, as written to `history.json`.
        seconds: time spent in steps, of all runs.
        num_rows: rows of these steps.
        out_of_range: ids of these steps that no table had.
        plateau: where a learning rate stands that goes by evaluations.
    """

    step: int = 0
    loss_sum: float = 0.0
    loss_steps: int = 0
    best_step: int | None = None
    best_value: float | None = None
    worse_evaluations: int = 0
    stopped_early: bool = False
    evaluations: tuple[Mapping[str, Any], ...] = ()
    seconds: float = 0.0
    num_rows: int = 0
    out_of_range: int = 0
    plateau: Plateau = dataclasses.field(default_factory=Plateau)

    def after_steps(self, losses: list[float], *, seconds: float, num_rows: int, out_of_range: int = 0) -> TrainState:
        """Returns the state after further steps with these losses."""
        return dataclasses.replace(
            self,
            step=self.step + len(losses),
            loss_sum=self.loss_sum + math.fsum(losses),
            loss_steps=self.loss_steps + len(losses),
            seconds=self.seconds + seconds,
            num_rows=self.num_rows + num_rows,
            out_of_range=self.out_of_range + out_of_range,
        )

    def after_evaluation(self, metrics: Mapping[str, float], *, rule: EarlyStoppingSpec, epoch: float) -> TrainState:
        """Returns the state after the valid split was scored; without metrics the newest weights are the best."""
        value = metrics.get(rule.figure)
        better = _is_better(value, self.best_value, rule=rule)
        worse = 0 if better else self.worse_evaluations + 1
        figures = {name: figure if math.isfinite(figure) else None for name, figure in metrics.items()}
        loss = self.loss_sum / self.loss_steps if self.loss_steps else None
        return dataclasses.replace(
            self,
            loss_sum=0.0,
            loss_steps=0,
            best_step=self.step if better else self.best_step,
            best_value=value if better else self.best_value,
            worse_evaluations=worse,
            stopped_early=rule.patience is not None and worse >= rule.patience,
            evaluations=(*self.evaluations, {"step": self.step, "epoch": epoch, "loss": loss, **figures}),
        )

    def with_rate(self, schedule: RateSchedule, *, metrics: Mapping[str, float], rule: EarlyStoppingSpec) -> TrainState:
        """Returns the state with a learning rate that follows from one more evaluation."""
        if not isinstance(schedule, PlateauRate) or rule.figure not in metrics:
            return self
        higher = rule.metric in HIGHER_IS_BETTER
        plateau = self.plateau.after(metrics[rule.figure], rule=schedule, higher_is_better=higher)
        return dataclasses.replace(self, plateau=plateau)

    def rows_per_s(self) -> float | None:
        """Returns the mean rate so far; None before the first step."""
        return self.num_rows / self.seconds if self.seconds else None

    def as_json(self) -> dict[str, Any]:
        """Returns the state as JSON values; floats survive exactly."""
        return dataclasses.asdict(self) | {"evaluations": [dict(entry) for entry in self.evaluations]}


def state_of(value: Mapping[str, Any]) -> TrainState:
    """Returns the state that `as_json` gave."""
    known = {**value, "evaluations": tuple(value["evaluations"])}
    if "plateau" in value:
        known["plateau"] = Plateau(**value["plateau"])
    return TrainState(**known)


def _is_better(value: float | None, best: float | None, *, rule: EarlyStoppingSpec) -> bool:
    if value is None or best is None:
        return True
    gain = value - best if rule.metric in HIGHER_IS_BETTER else best - value
    return gain > rule.min_delta
