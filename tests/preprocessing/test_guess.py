"""What columns seem to be, from literal values."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preprocessing.guess import guess_column


def column(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string())


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2", "3"], "int64"),
        (["1.5", "2", ".5"], "float64"),
        (["true", "False", ""], "bool"),
        (["u1", "u2", "u2"], "string"),
        (["12345678901234567890", "2", "3"], "float64"),
        (["0x1", "0x2"], "string"),
        (["2026-01-05T10:00:00Z", "2026-01-06 11:00:00.5+02:00"], "timestamp"),
    ],
)
def test_a_type_is_told_from_values(values: list[str], kind: str) -> None:
    assert guess_column(column(*values)).type == kind


@pytest.mark.parametrize(
    ("first", "second", "unit"),
    [
        ("1767571593", "1767571594", "s"),
        ("1767571593509", "1767571593510", "ms"),
        ("1767571593509123", "1767571593509124", "us"),
        ("2026-01-05T00:06:33.509Z", "2026-01-05T00:06:34Z", "iso"),
    ],
)
def test_a_time_is_told_with_its_unit(first: str, second: str, unit: str) -> None:
    guess = guess_column(column(first, second))
    assert (guess.type, guess.unit) == ("timestamp", unit)
    assert guess.times_ms is not None
    assert guess.times_ms[0] == pytest.approx(1767571593509, abs=510)


def test_durations_in_milliseconds_are_no_times() -> None:
    assert guess_column(column("61802", "11933", "1184")).type == "int64"


def test_days_without_an_hour_are_noticed() -> None:
    assert guess_column(column("2022-04-10", "2022-04-11")).date_only
    assert not guess_column(column("2022-04-10 01:00:00", "2022-04-11 02:00:00")).date_only


def test_the_only_negative_number_of_several_rows_stands_for_missing() -> None:
    guess = guess_column(column("-124", "3", "-124", "7", "", "NULL"))
    assert guess.missing == ("NULL", "-124")
    assert guess.missing_share == pytest.approx(4 / 6)
    assert guess.values.to_pylist() == [None, "3", None, "7", None, None]
    assert guess_column(column("-1", "3", "-2", "7")).missing == ()
    assert guess_column(column("-1", "3", "4", "7")).missing == ()


def test_a_note_in_brackets_stands_for_missing() -> None:
    guess = guess_column(column("Drama|War", "(no genres listed)", "War|Drama|War"))
    assert (guess.type, guess.delimiter, guess.missing) == ("list<string>", "|", ("(no genres listed)",))
    assert guess.missing_share == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("values", "delimiter"),
    [
        (["a|b", "b|c", "a|c", "a|b|c"], "|"),
        (["1,2", "2,3", "1", "1,2"], ","),
        (["5 6", "6 5 5", "6", "5"], " "),
        (["[10,100)", "[1,10)", "[10,100)", "[1,10)"], None),
        (["Toy Story (1995)", "Jumanji (1995)", "Heat (1995)", "Heat (1995)"], None),
        (["one, two", "three, four", "five, six", "seven, eight"], None),
    ],
)
def test_a_delimiter_splits_into_values_that_recur(values: list[str], delimiter: str | None) -> None:
    assert guess_column(column(*values)).delimiter == delimiter


def test_a_few_values_of_another_type_are_dirt() -> None:
    guess = guess_column(column(*["1.5"] * 99, "abc"))
    assert guess.type == "float64"
    assert guess.invalid_share == pytest.approx(0.01)
    assert guess_column(column(*["1.5"] * 9, "abc")).type == "string"


def test_zero_and_one_are_binary_and_one_alone_is_not() -> None:
    assert guess_column(column("0", "1", "0")).is_binary
    assert not guess_column(column("1", "1")).is_binary
    assert not guess_column(column("0", "1", "2")).is_binary


_CELLS = st.one_of(st.none(), st.text(max_size=8), st.text("-+0123456789.eE |,:TZ", max_size=12))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_CELLS, max_size=12))
def test_no_text_is_too_strange_to_guess(values: list[str | None]) -> None:
    clean = [None if value is None else value.encode("utf-8", "replace").decode() for value in values]
    guess = guess_column(pa.array(clean, pa.string()))
    assert guess.rows == len(values)
    assert 0.0 <= guess.missing_share <= 1.0
