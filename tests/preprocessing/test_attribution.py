import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.attribution import Attribution, attribute
from preprocessing.errors import DataError
from preprocessing.spec import Touch
from preprocessing.visibility import NO_TIME

LIMITS = settings(deadline=None, max_examples=150)  # machines under test are busy
LEAST, GREATEST = -(2**63), 2**63 - 1

USERS = st.sampled_from([None, b"u", b"v", b""])
ITEMS = st.sampled_from([None, 1, 2])
TIMES = st.sampled_from([None, 0, 1, 2, 5, 9, 10, 11, 100, -(2**62), 2**62, LEAST, LEAST + 5, GREATEST - 5, GREATEST])
VALUES = st.sampled_from([None, math.nan, 0.1, 0.2, 0.3, 1e16, -0.0])
IMPRESSIONS = st.lists(st.tuples(USERS, ITEMS, TIMES), max_size=20)
ACTIONS = st.lists(st.tuples(USERS, ITEMS, TIMES, TIMES, VALUES), max_size=20)
WINDOWS = st.sampled_from([0, 1, 5, 2**63, 2**70])
TOUCHES = st.sampled_from(["last", "first"])
KINDS = {"user": pa.binary(), "item": pa.int64(), "time": pa.int64(), "arrival": pa.int64(), "value": pa.float64()}


def make_table(rows: Sequence[Any], names: Sequence[str]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return pa.table({name: pa.array(column, KINDS[name]) for name, column in zip(names, columns, strict=True)})


def attribute_rows(
    impressions: Sequence[Any],
    actions: Sequence[Any],
    *,
    order: Sequence[int] | None = None,
    window_ms: int = 5,
    touch: Touch = "last",
    clocks: tuple[bool, bool, bool] = (True, True, True),
    key: Sequence[str] = ("user", "item"),
) -> Attribution:
    return attribute(
        make_table(impressions, ["user", "item", "time"]),
        make_table(actions, ["user", "item", "time", "arrival", "value"]),
        key=key,
        impression_time="time" if clocks[0] else None,
        action_time="time" if clocks[1] else None,
        action_arrival="arrival" if clocks[2] else None,
        window_ms=window_ms,
        touch=touch,
        order=np.array(range(len(impressions)) if order is None else order, np.uint64),
        value="value",
    )


def owner_by_definition(
    action: Any, impressions: Sequence[Any], order: Sequence[int], *, window: int, touch: Touch, clocks: bool
) -> int | None:
    able = [
        i
        for i, shown in enumerate(impressions)
        if None not in action[:2]
        and action[:2] == shown[:2]
        and (not clocks or (None not in (action[2], shown[2]) and shown[2] <= action[2] <= shown[2] + window))
    ]
    sign = -1 if touch == "last" else 1
    return min(able, key=lambda i: (sign * impressions[i][2] if clocks else 0, order[i], i), default=None)


def known_by_definition(action: Any, clocks: tuple[bool, bool, bool]) -> int:
    seen = [time for time, used in zip(action[2:4], clocks[1:], strict=True) if used and time is not None]
    return max(seen, default=NO_TIME)


def assert_follows_definition(
    result: Attribution,
    impressions: Sequence[Any],
    actions: Sequence[Any],
    order: Sequence[int],
    *,
    window: int,
    touch: Touch,
    clocks: tuple[bool, bool, bool],
) -> None:
    both = clocks[0] and clocks[1]
    owners = [
        owner_by_definition(action, impressions, order, window=window, touch=touch, clocks=both) for action in actions
    ]
    assert result.matched.tolist() == [owner is not None for owner in owners]
    for i in range(len(impressions)):
        own = [action for action, owner in zip(actions, owners, strict=True) if owner == i]
        numbers = [action[4] for action in own if action[4] is not None and not math.isnan(action[4])]
        assert result.positive[i] == bool(own)
        assert result.known_ms[i] == min((known_by_definition(action, clocks) for action in own), default=NO_TIME)
        assert result.has_value[i] == bool(numbers)
        assert result.value[i] == pytest.approx(math.fsum(numbers), rel=1e-12)


@LIMITS
@given(
    data=st.data(),
    impressions=IMPRESSIONS,
    actions=ACTIONS,
    window=WINDOWS,
    touch=TOUCHES,
    clocks=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_actions_belong_where_the_definition_says(
    *,
    data: st.DataObject,
    impressions: list[Any],
    actions: list[Any],
    window: int,
    touch: Touch,
    clocks: tuple[bool, bool, bool],
) -> None:
    size = len(impressions)
    order = data.draw(st.lists(st.sampled_from([0, 1, 2**64 - 1]), min_size=size, max_size=size))
    result = attribute_rows(impressions, actions, order=order, window_ms=window, touch=touch, clocks=clocks)
    assert_follows_definition(result, impressions, actions, order, window=window, touch=touch, clocks=clocks)


@LIMITS
@given(
    data=st.data(),
    impressions=IMPRESSIONS,
    actions=ACTIONS,
    window=WINDOWS,
    touch=TOUCHES,
    clocks=st.booleans(),
)
def test_the_order_of_rows_changes_nothing(
    *, data: st.DataObject, impressions: list[Any], actions: list[Any], window: int, touch: Touch, clocks: bool
) -> None:
    shown = data.draw(st.permutations(range(len(impressions))))
    acted = data.draw(st.permutations(range(len(actions))))
    plain = attribute_rows(impressions, actions, window_ms=window, touch=touch, clocks=(clocks, True, True))
    shuffled = attribute_rows(
        [impressions[i] for i in shown],
        [actions[i] for i in acted],
        order=shown,  # the order goes with the row
        window_ms=window,
        touch=touch,
        clocks=(clocks, True, True),
    )
    for name in ("positive", "known_ms", "has_value"):
        np.testing.assert_array_equal(getattr(plain, name)[shown], getattr(shuffled, name))
    assert plain.value[shown].tobytes() == shuffled.value.tobytes()
    np.testing.assert_array_equal(plain.matched[acted], shuffled.matched)


def test_a_larger_log_follows_the_definition() -> None:
    random = np.random.default_rng(7)
    impressions = [(b"u%d" % u, int(i), int(t)) for u, i, t in random.integers(0, [3, 2, 300], (400, 3))]
    actions = [
        (b"u%d" % u, int(i), int(t), int(t + late), float(late))
        for u, i, t, late in random.integers(0, [3, 3, 300, 40], (200, 4))
    ]
    order = random.integers(0, 5, 400).tolist()
    for touch in ("last", "first"):
        result = attribute_rows(impressions, actions, order=order, window_ms=20, touch=touch)
        clocks = (True, True, True)
        assert_follows_definition(result, impressions, actions, order, window=20, touch=touch, clocks=clocks)
        assert 50 < result.matched.sum() < 200


def test_of_two_impressions_one_gets_the_click() -> None:
    impressions = [(b"u", 1, 10), (b"u", 1, 12), (b"u", 1, 20)]
    click = [(b"u", 1, 14, None, 2.5)]
    assert attribute_rows(impressions, click, touch="last").positive.tolist() == [False, True, False]
    assert attribute_rows(impressions, click, touch="first").positive.tolist() == [True, False, False]
    assert attribute_rows(impressions, click, touch="first", window_ms=3).positive.tolist() == [False, True, False]
    assert attribute_rows(impressions, click).value.tolist() == [0.0, 2.5, 0.0]


@pytest.mark.parametrize("touch", ["last", "first"])
def test_both_ends_of_the_window_count(touch: Touch) -> None:
    for acted, expected in ((9, False), (10, True), (15, True), (16, False)):
        result = attribute_rows([(b"u", 1, 10)], [(b"u", 1, acted, None, None)], touch=touch)
        assert result.positive.tolist() == [expected], acted
        assert result.matched.tolist() == [expected], acted


def test_an_impression_is_known_to_be_positive_from_the_first_arrival() -> None:
    actions = [(b"u", 1, 11, 90, None), (b"u", 1, 13, 40, None), (b"u", 1, 12, 3, None)]
    assert attribute_rows([(b"u", 1, 10)], actions[:2]).known_ms.tolist() == [40]
    assert attribute_rows([(b"u", 1, 10)], actions).known_ms.tolist() == [12]  # it cannot arrive before it happens
    assert attribute_rows([(b"u", 1, 10)], actions, clocks=(True, True, False)).known_ms.tolist() == [11]


def test_values_of_one_impression_are_summed() -> None:
    actions = [(b"u", 1, 11, None, 0.5), (b"u", 1, 12, None, None), (b"u", 1, 13, None, 4.0)]
    result = attribute_rows([(b"u", 1, 10), (b"v", 1, 10)], [*actions, (b"v", 1, 10, None, None)])
    assert result.value.tolist() == [4.5, 0.0]
    assert result.has_value.tolist() == [True, False]
    assert result.positive.tolist() == [True, True]


def test_whole_numbers_and_truth_values_are_summed_and_text_is_refused() -> None:
    shown = pa.table({"key": [1, 2]})
    arguments: dict[str, Any] = {
        "key": ("key",),
        "impression_time": None,
        "action_time": None,
        "action_arrival": None,
        "window_ms": 0,
        "touch": "last",
        "order": np.zeros(2, np.uint64),
        "value": "v",
    }
    for column, expected in (([2**60, 1], 2.0**60), ([True, True], 2.0), ([None, 7], 7.0)):
        assert attribute(shown, pa.table({"key": [2, 2], "v": column}), **arguments).value.tolist() == [0.0, expected]
    with pytest.raises(DataError, match="column 'v' is summed over actions, and holds string"):
        attribute(shown, pa.table({"key": [2], "v": ["x"]}), **arguments)


def test_without_clocks_the_smallest_order_gets_all_actions() -> None:
    impressions = [(b"u", 1, 50), (b"u", 1, None), (b"v", 1, 1)]
    actions = [(b"u", 1, None, None, 1.0), (b"u", 1, -7, None, 2.0), (b"w", 1, 1, None, 4.0)]
    result = attribute_rows(impressions, actions, order=[9, 3, 0], clocks=(False, True, True))
    assert result.positive.tolist() == [False, True, False]
    assert result.value.tolist() == [0.0, 3.0, 0.0]
    assert result.matched.tolist() == [True, True, False]
    assert result.known_ms.tolist() == [NO_TIME, -7, NO_TIME]


def test_empty_tables_have_answers() -> None:
    nothing = attribute_rows([], [])
    assert (len(nothing.positive), len(nothing.matched)) == (0, 0)
    assert attribute_rows([(b"u", 1, 10)], []).known_ms.tolist() == [NO_TIME]
    assert attribute_rows([], [(b"u", 1, 10, None, 1.0)]).matched.tolist() == [False]
