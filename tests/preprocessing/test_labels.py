import pyarrow as pa
import pytest

from preprocessing.errors import DataError
from preprocessing.labels import compare


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
