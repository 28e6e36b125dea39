import json

from pipeline.train_spec import EarlyStoppingSpec
from pipeline.train_state import TrainState, state_of


def evaluated(values: list[float], rule: EarlyStoppingSpec) -> TrainState:
    state = TrainState()
    for value in values:
        state = state.after_steps([0.5], seconds=1.0, num_rows=8)
        state = state.after_evaluation({rule.metric: value}, rule=rule, epoch=1.0)
    return state


def test_keeps_the_step_of_the_best_auc() -> None:
    state = evaluated([0.6, 0.7, 0.65], EarlyStoppingSpec(metric="auc", patience=2))
    assert (state.best_step, state.best_value, state.stopped_early) == (2, 0.7, False)


def test_a_lower_log_loss_is_better() -> None:
    state = evaluated([0.6, 0.7, 0.5], EarlyStoppingSpec(metric="log_loss"))
    assert (state.best_step, state.best_value) == (3, 0.5)


def test_stops_after_patience_evaluations_that_are_not_better() -> None:
    assert evaluated([0.7, 0.6, 0.7], EarlyStoppingSpec(patience=2)).stopped_early
    assert not evaluated([0.7, 0.6, 0.71, 0.6], EarlyStoppingSpec(patience=2)).stopped_early
    assert not evaluated([0.7, 0.6, 0.6, 0.6], EarlyStoppingSpec(patience=None)).stopped_early


def test_the_figure_of_one_label_may_decide() -> None:
    state = TrainState()
    for click, buy in ((0.6, 0.8), (0.7, 0.7)):
        metrics = {"auc": (click + buy) / 2, "auc/click": click, "auc/buy": buy}
        state = state.after_steps([0.5], seconds=1.0, num_rows=8)
        state = state.after_evaluation(metrics, rule=EarlyStoppingSpec(label="buy"), epoch=1.0)
    assert (state.best_step, state.best_value) == (1, 0.8)


def test_a_gain_within_min_delta_is_not_better() -> None:
    assert evaluated([0.70, 0.705], EarlyStoppingSpec(min_delta=0.01)).best_step == 1
    assert evaluated([0.70, 0.72], EarlyStoppingSpec(min_delta=0.01)).best_step == 2


def test_without_metrics_the_newest_weights_are_the_best() -> None:
    state = TrainState()
    for _ in range(4):
        state = state.after_steps([0.5], seconds=1.0, num_rows=8)
        state = state.after_evaluation({}, rule=EarlyStoppingSpec(patience=1), epoch=1.0)
    assert state.best_step == 4
    assert not state.stopped_early


def test_an_evaluation_carries_the_mean_loss_since_the_last() -> None:
    rule = EarlyStoppingSpec()
    state = TrainState().after_steps([1.0, 2.0], seconds=1.0, num_rows=8).after_steps([3.0], seconds=1.0, num_rows=4)
    state = state.after_evaluation({"auc": 0.6}, rule=rule, epoch=0.5)
    state = state.after_steps([7.0], seconds=2.0, num_rows=4).after_evaluation(
        {"auc": float("nan")}, rule=rule, epoch=1
    )
    assert [dict(entry) for entry in state.evaluations] == [
        {"step": 3, "epoch": 0.5, "loss": 2.0, "auc": 0.6},
        {"step": 4, "epoch": 1, "loss": 7.0, "auc": None},
    ]
    assert state.rows_per_s() == 4.0


def test_survives_json_exactly() -> None:
    state = evaluated([0.1 + 0.2, 1 / 3], EarlyStoppingSpec())
    assert state_of(json.loads(json.dumps(state.as_json()))) == state
