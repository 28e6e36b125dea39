import math

import numpy as np
import pyarrow as pa
import pytest

from preprocessing import analysis
from preprocessing.errors import CorruptError, DataError
from preprocessing.spec import (
    BucketedListFeature,
    CategoricalFeature,
    CrossedFeature,
    FeatureSpec,
    HashedFeature,
    IntegerFeature,
    MultivaluedFeature,
    NumericFeature,
)

FEATURES: list[FeatureSpec] = [
    CategoricalFeature(kind="categorical", name="city"),
    MultivaluedFeature(kind="multivalued", name="tags", max_length=2),
    NumericFeature(kind="numeric", name="price", clip=(0.0, 8.0), log1p=True),
    IntegerFeature(kind="integer", name="position", size=4),
    HashedFeature(kind="hashed", name="city_hash", column="city", buckets=5),
    CrossedFeature(kind="crossed", name="city_position", columns=("city", "position"), buckets=5),
]
ROWS = pa.table(
    {
        "city": pa.array([b"Rome", None, b"Rome", b"\x00", b"Oslo"], pa.binary()),
        "tags": pa.array([[b"a", b"b", b"c"], None, [], [b"a", None], [b"c"]], pa.list_(pa.binary())),
        "price": pa.array([1.0, math.nan, math.inf, 100.0, None]),
        "position": pa.array([0, 1, None, 3, -(2**63)], pa.int64()),
    }
)


def test_tokens_are_counted_without_missing_ones() -> None:
    state = analysis.analyse(ROWS, FEATURES)
    city = state.features["city"]
    assert city.tokens is not None
    assert dict(zip(city.tokens.tokens.to_pylist(), city.tokens.counts, strict=True)) == {b"Rome": 2, b"Oslo": 1}
    assert (city.num_rows, city.num_missing) == (5, 2)


def test_list_values_beyond_the_length_are_not_counted() -> None:
    tags = analysis.analyse(ROWS, FEATURES).features["tags"]
    assert tags.tokens is not None
    assert dict(zip(tags.tokens.tokens.to_pylist(), tags.tokens.counts, strict=True)) == {b"a": 2, b"b": 1, b"c": 1}
    assert tags.num_missing == 2


def test_number_lists_count_empty_lists_and_the_numbers_they_keep() -> None:
    feature = BucketedListFeature(kind="bucketed_list", name="ages", boundaries=(1.0,), max_length=2)
    rows = pa.table({"ages": pa.array([[1, 2, 3], None, [], [None, 2], [-(2**63)]], pa.list_(pa.int64()))})
    ages = analysis.analyse(rows, [feature]).features["ages"]
    assert (ages.num_rows, ages.num_missing) == (5, 2)
    assert ages.histogram is not None
    assert ages.histogram.edges().tolist() == [1.0, 2.0]
    assert ages.histogram.counts.tolist() == [1, 2]


def test_nan_and_infinity_are_missing_and_poison_nothing() -> None:
    price = analysis.analyse(ROWS, FEATURES).features["price"]
    assert price.moments is not None
    assert price.num_missing == 3
    # 1 and 100 clipped to 8, then log1p.
    expected = np.log1p([1.0, 8.0])
    assert price.moments.count == 2
    assert price.moments.mean == pytest.approx(expected.mean())
    assert price.moments.deviation() == pytest.approx(expected.std())


def test_other_features_count_missing_rows() -> None:
    state = analysis.analyse(ROWS, FEATURES)
    assert state.features["position"].num_missing == 2
    assert state.features["city_hash"].num_missing == 2
    # Rows 1 (no city), 2 (no position), 3 (marker), 4 (marker).
    assert state.features["city_position"].num_missing == 4


def test_merged_states_of_slices_equal_the_state_of_all_rows() -> None:
    whole = analysis.analyse(pa.concat_tables([ROWS, ROWS]), FEATURES)
    merged = analysis.merge([analysis.analyse(part, FEATURES) for part in (ROWS[:2], ROWS[2:], ROWS)])
    found, expected = analysis.summary(merged), analysis.summary(whole)
    for key in ("mean", "deviation"):  # sums of floats may round otherwise
        assert found["price"].pop(key) == pytest.approx(expected["price"].pop(key))
    assert found == expected


def test_states_survive_bytes() -> None:
    state = analysis.analyse(ROWS, FEATURES)
    data = analysis.to_bytes(state)
    again = analysis.from_bytes(data)
    assert analysis.to_bytes(again) == data
    assert analysis.summary(again) == analysis.summary(state)
    assert list(again.features) == [feature.name for feature in FEATURES]
    assert again.features["price"].tokens is None
    assert again.features["city"].histogram is None


def test_a_table_without_rows_has_a_state_that_adds_nothing() -> None:
    empty = analysis.from_bytes(analysis.to_bytes(analysis.analyse(ROWS[:0], FEATURES)))
    state = analysis.analyse(ROWS, FEATURES)
    assert analysis.summary(analysis.merge([empty, state, empty])) == analysis.summary(state)


def test_broken_bytes_are_refused() -> None:
    with pytest.raises(CorruptError):
        analysis.from_bytes(analysis.to_bytes(analysis.analyse(ROWS, FEATURES))[:100])
    with pytest.raises(CorruptError):
        analysis.from_bytes(b"")


def test_an_absent_column_is_named() -> None:
    with pytest.raises(DataError, match="no column 'city'"):
        analysis.analyse(ROWS.drop_columns(["city"]), FEATURES)


def test_summary_shows_shares_and_top_values_by_count_then_bytes() -> None:
    rows = pa.table({"city": pa.array([b"b", b"a", b"\xff", b"c", b"c"], pa.binary())})
    found = analysis.summary(analysis.analyse(rows, [FEATURES[0]]))["city"]
    assert found == {
        "num_rows": 5,
        "missing_share": 0.0,
        "num_values": 5,
        "distinct": 4,
        "top_values": [
            {"value": "c", "count": 2},
            {"value": "a", "count": 1},
            {"value": "b", "count": 1},
            {"value": "\\xff", "count": 1},
        ],
    }


def test_summary_of_numbers_has_quantiles_of_raw_values() -> None:
    found = analysis.summary(analysis.analyse(ROWS, FEATURES))["price"]
    assert found["quantiles"]["0.0"] == 1.0
    assert found["quantiles"]["1.0"] == 100.0
    assert found["missing_share"] == pytest.approx(0.6)
