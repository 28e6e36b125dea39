import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.step_plan import StepPlan

PLAN = StepPlan(
    steps_per_epoch=10, total_steps=25, evaluate_every_epochs=1.0, checkpoint_every_steps=7, steps_per_execution=4
)


def walk(plan: StepPlan, start: int = 0) -> list[int]:
    stops = [start]
    while stops[-1] < plan.total_steps:
        stops.append(plan.next_stop(stops[-1]))
    return stops[1:]


def test_executions_stop_at_evaluations_checkpoints_epochs_and_the_end() -> None:
    assert walk(PLAN) == [4, 7, 10, 14, 18, 20, 21, 25]


def test_executions_stop_where_a_trace_starts_and_ends() -> None:
    traced = dataclasses.replace(PLAN, profiled=range(13, 17))  # steps 13 to 16
    assert walk(traced) == [4, 7, 10, 12, 14, 16, 20, 21, 25]


def test_evaluates_at_each_multiple_and_at_the_end() -> None:
    assert [step for step in range(26) if PLAN.evaluates_at(step)] == [10, 20, 25]


def test_evaluates_within_an_epoch() -> None:
    half = dataclasses.replace(PLAN, evaluate_every_epochs=0.25)
    assert [step for step in range(26) if half.evaluates_at(step)] == [3, 5, 8, 10, 13, 15, 18, 20, 23, 25]


def test_evaluates_at_each_step_if_the_interval_is_shorter() -> None:
    often = dataclasses.replace(PLAN, evaluate_every_epochs=0.01, total_steps=5)
    assert [step for step in range(6) if often.evaluates_at(step)] == [1, 2, 3, 4, 5]
    assert walk(often) == [1, 2, 3, 4, 5]


def test_checkpoints_at_evaluations_too() -> None:
    assert [step for step in range(1, 26) if PLAN.checkpoints_at(step)] == [7, 10, 14, 20, 21, 25]


@given(
    st.integers(1, 30), st.integers(1, 100), st.floats(0.01, 3), st.integers(1, 20), st.integers(1, 20), st.integers(0)
)
@settings(max_examples=200, deadline=None)
def test_a_resumed_run_passes_the_same_stops(  # noqa: PLR0917
    per_epoch: int, total: int, every: float, checkpoint: int, execution: int, pick: int
) -> None:
    plan = StepPlan(per_epoch, total, every, checkpoint, execution)
    stops = walk(plan)
    must_stop = [step for step in range(1, total + 1) if plan.checkpoints_at(step) or step % per_epoch == 0]
    assert set(must_stop) <= set(stops)
    saved = [step for step in stops if plan.checkpoints_at(step)]
    start = saved[pick % len(saved)]
    assert set(walk(plan, start)) == {step for step in stops if step > start}
