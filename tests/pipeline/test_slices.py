import numpy as np
import pyarrow as pa
import pytest

from pipeline.evaluate_spec import SliceSpec
from pipeline.slices import activity_slices, value_slices
from preprocessing.errors import ConfigError


def rows_by_name(found: object) -> dict[str, list[int]]:
    return {name: np.flatnonzero(mask).tolist() for name, mask in found}  # type: ignore[attr-defined]


@pytest.mark.parametrize("encode", [False, True])
def test_the_most_frequent_values_then_the_rest_and_the_missing_ones(encode: bool) -> None:
    values = pa.chunked_array([[b"a", b"b", b"a"], [None, b"\xff", b"b", b"a"]])
    if encode:
        values = values.dictionary_encode()
    assert rows_by_name(value_slices(SliceSpec(column="tab", top=2), values)) == {
        "tab=a": [0, 2, 6],
        "tab=b": [1, 5],
        "tab: others": [4],
        "tab: missing": [3],
    }


def test_integers_are_values_and_fractions_are_cut_at_quartiles() -> None:
    assert rows_by_name(value_slices(SliceSpec(column="n"), pa.chunked_array([[7, 8, 7]]))) == {
        "n=7": [0, 2],
        "n=8": [1],
    }
    prices = pa.chunked_array([[1.0, 5.0, 2.0, 4.0, 3.0, None, float("nan")]])
    assert rows_by_name(value_slices(SliceSpec(column="p"), prices)) == {
        "p: 1 to 2": [0],
        "p: 2 to 3": [2],
        "p: 3 to 4": [4],
        "p: 4 to 5": [1, 3],
        "p: missing": [5, 6],
    }
    alike = pa.chunked_array([[2.0, 2.0]])
    assert rows_by_name(value_slices(SliceSpec(column="p"), alike)) == {"p: 2 to 2": [0, 1]}


def test_users_are_sliced_by_what_training_saw_of_them() -> None:
    spec = SliceSpec(column="user", by="activity", bounds=(1, 3))
    seen = [pa.chunked_array([["a", "b", "a"]]), pa.chunked_array([["a", None]])]
    values = pa.chunked_array([["a", "b", "new", None, "b"]])
    assert rows_by_name(activity_slices(spec, values, seen=seen)) == {
        "user: new": [2],
        "user: 1 to 2 training rows": [1, 4],
        "user: 3 and more training rows": [0],
    }


def test_lists_and_bounds_that_fall_are_refused() -> None:
    with pytest.raises(ConfigError, match="one value a row"):
        list(value_slices(SliceSpec(column="tags"), pa.chunked_array([[["x"]]])))
    with pytest.raises(ValueError, match="must rise"):
        SliceSpec(column="user", by="activity", bounds=(5, 5))
