from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.errors import DataError
from preprocessing.labels import compare, join_actions

LIMITS = settings(deadline=None, max_examples=60)  # machines under test are busy

KEY = st.sampled_from([None, b"u", b"v", b""])
ITEM = st.sampled_from([None, 1, 2])
TIME = st.sampled_from([None, 0, 1, 5, 9, 10, 11, 100, -(2**62), 2**62])
ROWS = st.lists(st.tuples(KEY, ITEM, TIME), max_size=25)


def make_log(rows: list[Any], clock: str) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    kinds = {"user": pa.binary(), "item": pa.int64(), clock: pa.int64()}
    return pa.table({name: pa.array(column, kind) for (name, kind), column in zip(kinds.items(), columns, strict=True)})


@LIMITS
@given(ROWS, ROWS, st.sampled_from([1, 5, 1000]))
def test_an_action_within_the_window_makes_a_positive(impressions: list[Any], actions: list[Any], window: int) -> None:
    labels = join_actions(
        make_log(impressions, "shown"),
        make_log(actions, "acted"),
        key=("user", "item"),
        impression_time="shown",
        action_time="acted",
        window_ms=window,
    )
    expected = [
        float(
            None not in impression
            and any(
                None not in action and action[:2] == impression[:2] and 0 <= action[2] - impression[2] <= window
                for action in actions
            )
        )
        for impression in impressions
    ]
    assert labels.tolist() == expected
    assert labels.dtype == "float32"


@LIMITS
@given(ROWS, ROWS)
def test_without_clocks_the_key_decides(impressions: list[Any], actions: list[Any]) -> None:
    labels = join_actions(
        make_log(impressions, "shown"),
        make_log(actions, "acted"),
        key=("user",),
        impression_time=None,
        action_time="acted",
        window_ms=1,
    )
    users = {action[0] for action in actions} - {None}
    assert labels.tolist() == [float(impression[0] in users) for impression in impressions]


def test_both_ends_of_the_window_count() -> None:
    impressions = make_log([(b"u", 1, 10)] * 1, "shown")
    for acted, expected in ((9, 0.0), (10, 1.0), (15, 1.0), (16, 0.0)):
        labels = join_actions(
            impressions,
            make_log([(b"u", 1, acted)], "acted"),
            key=("user", "item"),
            impression_time="shown",
            action_time="acted",
            window_ms=5,
        )
        assert labels.tolist() == [expected], acted


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("==", [0, 1, 0, 0]),
        ("!=", [1, 0, 1, 0]),
        (">=", [0, 1, 1, 0]),
        ("<=", [1, 1, 0, 0]),
        (">", [0, 0, 1, 0]),
        ("<", [1, 0, 0, 0]),
    ],
)
def test_comparisons(operator: str, expected: list[int]) -> None:
    for kind in (pa.int64(), pa.float64(), pa.int8()):
        labels, valid = compare(pa.array([3, 4, 5, None], kind), operator, 4.0)
        assert labels.tolist() == expected
        assert labels.dtype == "float32"
        assert valid.tolist() == [True, True, True, False]


def test_large_integers_are_compared_exactly() -> None:
    array = pa.chunked_array([[2**53 + 1], [2**53]])
    labels, valid = compare(array, "==", 2.0**53)
    assert labels.tolist() == [0, 1]
    assert valid.all()
    assert compare(array, "<", 1e30)[0].tolist() == [1, 1]
    assert compare(pa.array([1, 2]), ">", 1.5)[0].tolist() == [0, 1]


def test_not_a_number_is_no_label() -> None:
    labels, valid = compare(pa.array([float("nan"), 1.0]), "!=", 1.0)
    assert labels.tolist() == [0, 0]
    assert valid.tolist() == [False, True]


def test_text_cannot_be_compared() -> None:
    with pytest.raises(DataError, match="holds binary; declare it int64 or float64"):
        compare(pa.array([b"1"]), "==", 1.0)
