import numpy as np
import pyarrow as pa
import pytest

from preprocessing import analysis
from preprocessing.errors import DataError
from preprocessing.spec import (
    BucketedListFeature,
    CategoricalFeature,
    FeatureSpec,
    MultivaluedFeature,
    NumericFeature,
)
from preprocessing.transform_plan import TransformPlan, plan_transform

ROWS = pa.table(
    {
        "city": pa.array([b"a", b"b"], pa.binary()),
        "tags": pa.array([[b"a"], [b"b"]], pa.list_(pa.binary())),
        "sizes": pa.array([[1.0], [2.0]], pa.list_(pa.float64())),
        "price": pa.array([1.0, 2.0]),
        "count": pa.array([1, 2], pa.int64()),
        "same": pa.array([0.1, 0.1]),
    }
)


def plan(*features: FeatureSpec) -> TransformPlan:
    types = {field.name: field.type for field in ROWS.schema}
    state = analysis.analyse(ROWS, features)
    return plan_transform(features, state, time_zone="UTC", labels=["y"], raw_types=types)


def test_an_empty_training_split_is_a_data_error() -> None:
    feature = CategoricalFeature(kind="categorical", name="city")
    types = {field.name: field.type for field in ROWS.schema}
    for state in (analysis.merge([]), analysis.analyse(ROWS[:0], [feature])):
        with pytest.raises(DataError, match="no rows to learn from"):
            plan_transform([feature], state, time_zone="UTC", labels=["y"], raw_types=types)


def test_a_constant_column_is_not_divided_by_its_rounding() -> None:
    (only,) = plan(NumericFeature(kind="numeric", name="same")).features
    assert only.deviation == 1.0
    assert only.mean == pytest.approx(np.float32(0.1))


def test_a_given_fill_is_clipped_and_logged_like_a_raw_value() -> None:
    feature = NumericFeature(kind="numeric", name="price", missing=100.0, clip=(0.0, 7.0), log1p=True)
    assert plan(feature).features[0].fill == pytest.approx(np.log(8.0))


def test_inputs_keep_the_order_of_the_config() -> None:
    made = plan(
        NumericFeature(kind="numeric", name="price"),
        CategoricalFeature(kind="categorical", name="city"),
        MultivaluedFeature(kind="multivalued", name="tags", pooling="sum"),
        BucketedListFeature(kind="bucketed_list", name="sizes", boundaries=(1.5, 2.5), max_length=4, pooling="sqrtn"),
        NumericFeature(kind="numeric", name="count", buckets=2),
        CategoricalFeature(kind="categorical", name="town", column="city", table="city"),
        NumericFeature(kind="numeric", name="same", indicator=False),
    ).schema
    assert [field.name for field in made.id_fields] == ["city", "count", "town"]
    assert [field.table for field in made.id_fields] == ["city", "count", "city"]
    assert [(field.name, field.length, field.pooling) for field in made.list_fields] == [
        ("tags", 8, "sum"),
        ("sizes", 4, "sqrtn"),
    ]
    assert made.dense == ("price", "price:missing", "same")
    assert [table.name for table in made.tables] == ["city", "tags", "sizes", "count"]
    assert [(raw.name, raw.dtype, raw.length) for raw in made.raw_columns] == [
        ("price", "float32", None),
        ("city", "string", None),
        ("tags", "string", 8),
        ("sizes", "float32", 4),
        ("count", "int64", None),
        ("same", "float32", None),
    ]
