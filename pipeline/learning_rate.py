"""By how much the learning rates are scaled at each step: a function of the step, and of the evaluations before it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.train_spec import CosineRate, RateSchedule, StepRate

__all__ = ["learning_rate_scales"]


def learning_rate_scales(
    schedule: RateSchedule,
    *,
    warmup_steps: int,
    steps: npt.NDArray[np.int64],
    steps_per_epoch: int,
    total_steps: int,
    plateau_scale: float = 1.0,
) -> npt.NDArray[np.float32]:
    """Returns the scale at each of `steps`, counted from 0.

    Warm-up: step t of w has (t + 1) / w of what the schedule gives; `plateau_scale` is what evaluations have left.
    """
    warmup = np.minimum((steps + 1) / max(warmup_steps, 1), 1.0)
    scheduled = _scheduled(schedule, steps, steps_per_epoch=steps_per_epoch, total_steps=total_steps)
    return (warmup * scheduled * plateau_scale).astype(np.float32)


def _scheduled(
    schedule: RateSchedule, steps: npt.NDArray[np.int64], *, steps_per_epoch: int, total_steps: int
) -> npt.NDArray[np.float64]:
    """Returns the schedule's part of the scale."""
    if isinstance(schedule, CosineRate):
        wave = 0.5 * (1.0 + np.cos(np.pi * steps / total_steps))
        return schedule.final_scale + (1.0 - schedule.final_scale) * wave
    if isinstance(schedule, StepRate):
        return np.power(schedule.factor, np.floor(steps / (schedule.every_epochs * steps_per_epoch)))
    return np.ones(len(steps))
