import numpy as np
import pytest

from pipeline.learning_rate import learning_rate_scales
from pipeline.train_spec import ConstantRate, CosineRate, PlateauRate, RateSchedule, StepRate


def scales(schedule: RateSchedule, steps: list[int], *, warmup_steps: int = 0) -> list[float]:
    values = learning_rate_scales(
        schedule, warmup_steps=warmup_steps, steps=np.array(steps), steps_per_epoch=10, total_steps=40
    )
    assert values.dtype == np.float32
    return values.tolist()


def test_constant_is_one() -> None:
    assert scales(ConstantRate(), [0, 7, 39]) == [1, 1, 1]


def test_warm_up_rises_linearly_to_the_full_rate() -> None:
    assert scales(ConstantRate(), [0, 1, 3, 4, 9], warmup_steps=4) == [0.25, 0.5, 1, 1, 1]


def test_cosine_falls_from_one_to_its_final_scale() -> None:
    # (1 + cos(pi t / 40)) / 2 at t = 0, 20, 40 is 1, 1/2, 0; scaled into [0.2, 1].
    assert scales(CosineRate(final_scale=0.2), [0, 20, 40]) == pytest.approx([1, 0.6, 0.2])


def test_step_multiplies_at_epoch_ends() -> None:
    assert scales(StepRate(every_epochs=1.5, factor=0.5), [0, 14, 15, 29, 30]) == [1, 1, 0.5, 0.5, 0.25]


def test_warm_up_and_schedule_multiply() -> None:
    assert scales(StepRate(factor=0.5), [10], warmup_steps=22) == [0.25]


def test_what_a_plateau_left_multiplies_everything() -> None:
    values = learning_rate_scales(
        PlateauRate(), warmup_steps=4, steps=np.array([1, 9]), steps_per_epoch=10, total_steps=40, plateau_scale=0.1
    )
    assert values.tolist() == pytest.approx([0.05, 0.1])
