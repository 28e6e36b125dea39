"""First values of rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.initial_rows import initial_rows


def rows(start: int, stop: int, *, width: int = 4, table: str = "item", seed: int = 1) -> np.ndarray:
    return initial_rows(table, start, stop=stop, width=width, scale=0.5, seed=seed)


@given(start=st.integers(0, 10**10), cut=st.integers(0, 50))
def test_a_row_does_not_depend_on_the_range_asked_for(start: int, cut: int) -> None:
    whole = rows(start, start + 50)
    np.testing.assert_array_equal(whole[:cut], rows(start, start + cut))
    np.testing.assert_array_equal(whole[cut:], rows(start + cut, start + 50))


def test_a_wider_table_has_the_columns_of_a_narrower_one() -> None:
    np.testing.assert_array_equal(rows(0, 9, width=16)[:, :4], rows(0, 9))


def test_tables_seeds_and_rows_differ() -> None:
    base = rows(0, 1000)
    for other in (rows(0, 1000, table="user"), rows(0, 1000, seed=2), rows(1000, 2000)):
        assert (base != other).mean() > 0.999


def test_the_first_output_is_that_of_splitmix64(monkeypatch: pytest.MonkeyPatch) -> None:
    # The published first output of splitmix64 from seed 0 is 0xE220A8397B1DCDAF.
    class Digest:
        def digest(self) -> bytes:
            return bytes(8)

    monkeypatch.setattr("models.initial_rows.hashlib.sha256", lambda _: Digest())
    value = initial_rows("", 0, stop=1, width=1, scale=1.0, seed=0, dtype="float64")[0, 0]
    assert value == 2.0 * (0xE220A8397B1DCDAF >> 11) * 2.0**-53 - 1.0


def test_values_are_uniform_in_the_scale() -> None:
    values = rows(0, 100_000).ravel()
    assert values.min() >= -0.5
    assert values.max() < 0.5
    assert abs(values.mean()) < 0.002  # 4 standard errors: 0.5 / sqrt(3) / sqrt(400000) * 4
    assert values.std() == pytest.approx(0.5 / np.sqrt(3), rel=0.005)
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.007
