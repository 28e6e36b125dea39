"""The learning rate falls where a figure has stopped getting better, and a stored state goes on where it stood."""

import json

import pytest

from pipeline.plateau import Plateau, check_plateau
from pipeline.train_spec import ConstantRate, EarlyStoppingSpec, PlateauRate
from pipeline.train_state import TrainState, state_of
from preprocessing.errors import ConfigError

RULE = PlateauRate(divide_by=10, patience=2)


def scales(figures: list[float], rule: PlateauRate = RULE, *, higher: bool = True) -> list[float]:
    state, found = Plateau(), []
    for figure in figures:
        state = state.after(figure, rule=rule, higher_is_better=higher)
        found.append(state.scale)
    return found


def test_falls_after_patience_evaluations_that_are_not_better() -> None:
    assert scales([0.7, 0.6, 0.7, 0.65, 0.7]) == pytest.approx([1, 1, 0.1, 0.1, 0.01])


def test_a_better_figure_starts_the_wait_again() -> None:
    assert scales([0.7, 0.6, 0.71, 0.7, 0.72, 0.6]) == [1, 1, 1, 1, 1, 1]


def test_lower_is_better_for_losses() -> None:
    assert scales([0.5, 0.4, 0.3], PlateauRate(patience=1), higher=False) == [1, 1, 1]
    assert scales([0.5, 0.6], PlateauRate(patience=1), higher=False) == [1, 0.1]


def test_a_gain_must_pass_min_delta() -> None:
    assert scales([0.7, 0.705], PlateauRate(patience=1, min_delta=0.01)) == [1, 0.1]
    assert scales([0.7, 0.72], PlateauRate(patience=1, min_delta=0.01)) == [1, 1]


def test_never_falls_below_its_least() -> None:
    rule = PlateauRate(patience=1, divide_by=10, min_scale=0.05)
    assert scales([0.7, 0.7, 0.7, 0.7], rule) == [1, 0.1, 0.05, 0.05]


def test_a_figure_that_is_no_number_is_no_gain() -> None:
    assert scales([float("nan"), 0.5, 0.6], PlateauRate(patience=1)) == [0.1, 0.1, 0.1]


def test_the_state_survives_a_checkpoint() -> None:
    rule = EarlyStoppingSpec(patience=None)

    def after(state: TrainState, value: float) -> TrainState:
        return state.with_rate(RULE, metrics={"auc": value}, rule=rule)

    state = after(after(TrainState(), 0.7), 0.6)
    resumed = state_of(json.loads(json.dumps(state.as_json())))
    assert resumed == state
    assert after(resumed, 0.6).plateau.scale == 0.1
    assert after(TrainState(), 0.6).plateau.scale == 1.0


def test_a_checkpoint_from_before_there_were_plateaus_is_read() -> None:
    value = TrainState(step=3).as_json()
    del value["plateau"]
    assert state_of(value) == TrainState(step=3)


def test_other_schedules_do_not_listen() -> None:
    state = TrainState().with_rate(ConstantRate(), metrics={"auc": 0.1}, rule=EarlyStoppingSpec())
    assert state == TrainState()


def test_it_is_refused_without_a_valid_split() -> None:
    with pytest.raises(ConfigError, match="plateau goes by figures of the valid split"):
        check_plateau(RULE, num_valid_rows=0)
    check_plateau(RULE, num_valid_rows=1)
    check_plateau(ConstantRate(), num_valid_rows=0)
