"""At which steps a run evaluates, checkpoints and ends: arithmetic on step counts.

Step counts are steps done since the start of the run. Nothing here depends on where a run was resumed.
"""

from __future__ import annotations

import dataclasses
import math

from pipeline.epochs import num_steps
from pipeline.train_spec import TrainSpec

__all__ = ["StepPlan", "plan_steps"]


@dataclasses.dataclass(frozen=True)
class StepPlan:
    """The steps of a run."""

    steps_per_epoch: int
    total_steps: int
    evaluate_every_epochs: float
    checkpoint_every_steps: int
    steps_per_execution: int
    profiled: range = range(0)

    def evaluates_at(self, step: int) -> bool:
        """Returns whether the valid split is scored after `step` steps: at each multiple, and at the end."""
        return step == self.total_steps or (0 < step < self.total_steps and self._evaluation_from(step) == step)

    def checkpoints_at(self, step: int) -> bool:
        """Returns whether a checkpoint to resume from is written after `step` steps."""
        return step == self.total_steps or step % self.checkpoint_every_steps == 0 or self.evaluates_at(step)

    def next_stop(self, step: int) -> int:
        """Returns how many steps are done when the execution that starts after `step` steps returns.

        It returns early enough to evaluate, checkpoint, change the epoch, or start or end a trace.
        """
        ends = (self.profiled.start - 1, self.profiled.stop - 1) if self.profiled else ()
        return min(
            step + self.steps_per_execution,
            (step // self.steps_per_epoch + 1) * self.steps_per_epoch,
            (step // self.checkpoint_every_steps + 1) * self.checkpoint_every_steps,
            self._evaluation_from(step + 1),
            self.total_steps,
            *(end for end in ends if end > step),
        )

    def _evaluation_from(self, step: int) -> int:
        """Returns the first evaluation at or after `step`, a multiple of the interval rounded up to a whole step."""
        interval = self.evaluate_every_epochs * self.steps_per_epoch
        multiple = max(1, math.floor(step / interval) - 1)
        while math.ceil(multiple * interval) < step:
            multiple += 1
        return math.ceil(multiple * interval)


def plan_steps(num_rows: int, spec: TrainSpec) -> StepPlan:
    """Returns the steps of a run over a training split of so many rows."""
    steps_per_epoch = num_steps(num_rows, spec.batch_size)
    all_steps = spec.epochs * steps_per_epoch
    return StepPlan(
        steps_per_epoch=steps_per_epoch,
        total_steps=min(all_steps, spec.max_steps or all_steps),
        evaluate_every_epochs=spec.evaluate_every_epochs,
        checkpoint_every_steps=spec.checkpoint_every_steps,
        steps_per_execution=spec.steps_per_execution,
        profiled=spec.profiled_steps or range(0),
    )
