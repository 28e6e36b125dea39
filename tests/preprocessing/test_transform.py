"""Expected ids follow from the layout written in `vocabulary`, dense values from the formulas in `spec`."""

import datetime as dt
import json
import math
import shutil
import zoneinfo
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing import analysis, encode
from preprocessing.encode import encode_columns
from preprocessing.errors import ArtefactError, DataError
from preprocessing.raw_values import raw_tensors
from preprocessing.schema import IDS_KEY, MISSING_INT64, MISSING_STRING
from preprocessing.spec import (
    BucketedListFeature,
    CategoricalFeature,
    CrossedFeature,
    DayOfWeekFeature,
    FeatureSpec,
    HashedFeature,
    HourOfDayFeature,
    IntegerFeature,
    MultivaluedFeature,
    NumericFeature,
)
from preprocessing.transform import TRANSFORM_FILE, Transform, load_transform, save_transform
from preprocessing.transform_plan import TransformPlan, plan_transform

ZONE = "Europe/Berlin"
NAN = math.nan
FEATURES: list[FeatureSpec] = [
    CategoricalFeature(kind="categorical", name="city", oov_buckets=2),
    CategoricalFeature(kind="categorical", name="item", column="item_id", table="items"),
    MultivaluedFeature(kind="multivalued", name="seen", column="seen_ids", table="items", max_length=3),
    MultivaluedFeature(kind="multivalued", name="tags", max_length=2),
    MultivaluedFeature(kind="multivalued", name="tags_long", column="tags", max_length=4),
    HashedFeature(kind="hashed", name="city_hash", column="city", buckets=1000),
    IntegerFeature(kind="integer", name="position", size=3),
    CrossedFeature(kind="crossed", name="cross", columns=("city", "item_id"), buckets=10**6),
    HourOfDayFeature(kind="hour_of_day", name="hour", column="time_ms"),
    DayOfWeekFeature(kind="day_of_week", name="weekday", column="time_ms"),
    NumericFeature(kind="numeric", name="price"),
    NumericFeature(kind="numeric", name="log_price", column="price", clip=(0.0, 8.0), log1p=True, standardise=False),
    NumericFeature(kind="numeric", name="count", missing=0.0, indicator=False, standardise=False, log1p=True),
    NumericFeature(kind="numeric", name="price_bucket", column="price", buckets=(1.0, 4.0)),
    NumericFeature(kind="numeric", name="count_bucket", column="count", buckets=2),
    BucketedListFeature(kind="bucketed_list", name="ages", column="age_s", boundaries=(10.0, 60.0), max_length=3),
    BucketedListFeature(kind="bucketed_list", name="first_age", column="age_s", boundaries=(0.0,), max_length=1),
    BucketedListFeature(kind="bucketed_list", name="scores", boundaries=(-0.5, 0.1), max_length=2),
]
TRAIN: dict[str, Any] = {
    "city": pa.array([b"Rome", b"Rome", b"", b"Oslo", None, b"a\nb"], pa.binary()),
    "item_id": pa.array([5, 5, 5, 7, None, 8], pa.int64()),
    "seen_ids": pa.array([[7, 7], [7], None, [], [8], [9, 9]], pa.list_(pa.int64())),
    "tags": pa.array([[b"x"], [b"x", b"y", b"z"], None, [], [b"x"], [b"y"]], pa.list_(pa.binary())),
    "position": pa.array([0, 1, 2, 0, 1, 2], pa.int64()),
    "time_ms": pa.array([0] * 6, pa.int64()),
    "price": pa.array([1.0, 3.0, None, NAN, 5.0, 7.0]),
    "count": pa.array([1, 2, 3, 4, None, MISSING_INT64], pa.int64()),
    "age_s": pa.array([[9, 10, 60, 61], [-1], None, [], [None, 59], [2**63 - 1, MISSING_INT64]], pa.list_(pa.int64())),
    "scores": pa.array([[0.1], [-0.5, -0.6], [NAN, 0.0, 1.0], None, [None, math.inf], []], pa.list_(pa.float64())),
}


def table(columns: dict[str, Any]) -> pa.Table:
    num_rows = len(next(iter(columns.values())))
    return pa.table(columns | {"__label_click": pa.array([1.0] * num_rows, pa.float32())})


def make_plan(features: Sequence[FeatureSpec], rows: pa.Table) -> TransformPlan:
    # Through bytes and a merge, as the job does it.
    states = [analysis.from_bytes(analysis.to_bytes(analysis.analyse(part, features))) for part in (rows[:2], rows[2:])]
    raw_types = {field.name: field.type for field in rows.schema}
    return plan_transform(features, analysis.merge(states), time_zone=ZONE, labels=["click"], raw_types=raw_types)


@pytest.fixture(scope="module")
def plan() -> TransformPlan:
    return make_plan(FEATURES, table(TRAIN))


@pytest.fixture(scope="module")
def folder(plan: TransformPlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("transform") / "transform"
    save_transform(plan, path)
    return path


@pytest.fixture(scope="module")
def transform(folder: Path) -> Any:
    return load_transform(folder)


def apply(transform: Any, plan: TransformPlan, rows: pa.Table) -> dict[str, npt.NDArray[Any]]:
    """Returns ids and dense inputs by feature, as a request gets them."""
    raw = {name: tf.constant(value) for name, value in raw_tensors(rows, plan.schema.raw_columns).items()}
    outputs = {key: value.numpy() for key, value in transform(raw).items()}
    found = {field.name: outputs["ids"][:, i] for i, field in enumerate(plan.schema.id_fields)}
    found |= {name: outputs["dense"][:, i] for i, name in enumerate(plan.schema.dense)}
    return found | {field.name: outputs[f"list/{field.name}"] for field in plan.schema.list_fields}


@pytest.fixture(scope="module")
def found(transform: Any, plan: TransformPlan) -> dict[str, npt.NDArray[Any]]:
    return apply(transform, plan, table(TRAIN))


def test_tokens_have_the_ids_of_the_layout(found: dict[str, npt.NDArray[Any]]) -> None:
    # 0 missing, 1 and 2 out of vocabulary, then Rome (2 rows), "", "Oslo", "a\nb" (1 row each, by bytes).
    assert found["city"].tolist() == [3, 3, 4, 5, 0, 6]


def test_features_of_one_table_share_its_vocabulary(found: dict[str, npt.NDArray[Any]], plan: TransformPlan) -> None:
    # 7 is seen 4 times, 5 3 times, then 8 and 9 twice each.
    assert plan.vocabularies["items"].tokens.to_pylist() == [b"7", b"5", b"8", b"9"]
    assert plan.vocabularies["items"].counts.tolist() == [4, 3, 2, 2]
    assert found["item"].tolist() == [3, 3, 3, 2, 0, 4]
    assert found["seen"].tolist() == [[2, 2, 0], [2, 0, 0], [0, 0, 0], [0, 0, 0], [4, 0, 0], [5, 5, 0]]


def test_lists_are_cut_to_the_length_of_each_feature(found: dict[str, npt.NDArray[Any]], plan: TransformPlan) -> None:
    assert found["tags"].tolist() == [[2, 0], [2, 3], [0, 0], [0, 0], [2, 0], [3, 0]]
    assert found["tags_long"][1].tolist() == [2, 3, 4, 0]
    assert {raw.name: raw.length for raw in plan.schema.raw_columns}["tags"] == 4


def test_integers_are_their_own_tokens(transform: Any, plan: TransformPlan) -> None:
    rows = table({**TRAIN, "position": pa.array([0, 2, 3, -1, None, 2**63 - 1], pa.int64())})
    assert apply(transform, plan, rows)["position"].tolist() == [2, 4, 1, 1, 0, 1]


def test_numbers_are_standardised_by_training_moments(found: dict[str, npt.NDArray[Any]]) -> None:
    # Present are 1, 3, 5, 7: mean 4, deviation sqrt(5). Missing is the mean, 0 after standardising.
    np.testing.assert_allclose(found["price"], np.array([-3, -1, 0, 0, 1, 3]) / math.sqrt(5), rtol=1e-6)
    assert found["price:missing"].tolist() == [0, 0, 1, 1, 0, 0]


def test_numbers_are_clipped_then_logged(transform: Any, plan: TransformPlan) -> None:
    prices = pa.array([-5.0, 8.0, 1e9, math.inf, None, 0.5])
    price = apply(transform, plan, table({**TRAIN, "price": prices}))["log_price"]
    mean = np.log1p([1.0, 3.0, 5.0, 7.0]).mean()  # of the training rows
    expected = [0.0, math.log(9), math.log(9), mean, mean, math.log(1.5)]
    np.testing.assert_allclose(price, expected, rtol=1e-6)


def test_log1p_keeps_the_sign_and_a_given_fill_is_a_raw_value(transform: Any, plan: TransformPlan) -> None:
    counts = pa.array([-9, 0, 9, None, MISSING_INT64, 99], pa.int64())
    count = apply(transform, plan, table({**TRAIN, "count": counts}))["count"]
    np.testing.assert_allclose(count, [-math.log(10), 0, math.log(10), 0, 0, math.log(100)], rtol=1e-6)
    assert "count:missing" not in plan.schema.dense


def test_buckets_count_the_boundaries_at_or_below(transform: Any, plan: TransformPlan) -> None:
    prices = pa.array([0.9, 1.0, 3.9, 4.0, None, NAN])
    assert apply(transform, plan, table({**TRAIN, "price": prices}))["price_bucket"].tolist() == [1, 2, 2, 3, 0, 0]


def test_quantile_buckets_halve_the_training_rows(found: dict[str, npt.NDArray[Any]]) -> None:
    assert found["count_bucket"].tolist() == [1, 1, 2, 2, 0, 0]  # 1, 2 | 3, 4


def test_numbers_of_a_list_are_cut_into_buckets(found: dict[str, npt.NDArray[Any]], plan: TransformPlan) -> None:
    # 1 below the first boundary, 2 from it on, 3 from the second on; 0 is missing or padding.
    assert found["ages"].tolist() == [[1, 2, 3], [1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 2, 0], [3, 0, 0]]
    assert found["first_age"].tolist() == [[2], [1], [0], [0], [0], [2]]
    assert found["scores"].tolist() == [[3, 0], [2, 1], [0, 2], [0, 0], [0, 0], [0, 0]]
    columns = {raw.name: (raw.dtype, raw.length) for raw in plan.schema.raw_columns}
    assert columns["age_s"] == ("int64", 3)
    assert columns["scores"] == ("float32", 2)
    assert {field.name: field.table for field in plan.schema.list_fields}["first_age"] == "first_age"


def test_hours_and_days_are_those_of_the_zone(transform: Any, plan: TransformPlan) -> None:
    zone = zoneinfo.ZoneInfo(ZONE)
    spring = int(dt.datetime(2026, 3, 29, 1, tzinfo=dt.UTC).timestamp()) * 1000
    times = [spring - 1, spring, 0, -1, int(dt.datetime(2026, 1, 5, tzinfo=zone).timestamp()) * 1000, None]
    found = apply(transform, plan, table({**TRAIN, "time_ms": pa.array(times, pa.int64())}))
    assert found["hour"].tolist() == [1 + 1, 1 + 3, 1 + 1, 1 + 0, 1 + 0, 0]  # Berlin was at UTC+1 in 1970
    assert found["weekday"].tolist() == [1 + 6, 1 + 6, 1 + 3, 1 + 3, 1 + 0, 0]


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(-2_200_000_000_000, 4_100_000_000_000), min_size=6, max_size=6))
def test_hours_equal_those_of_the_calendar(transform: Any, plan: TransformPlan, times: list[int]) -> None:
    found = apply(transform, plan, table({**TRAIN, "time_ms": pa.array(times, pa.int64())}))
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    local = [(epoch + dt.timedelta(milliseconds=time)).astimezone(zoneinfo.ZoneInfo(ZONE)) for time in times]
    assert found["hour"].tolist() == [1 + time.hour for time in local]
    assert found["weekday"].tolist() == [1 + time.weekday() for time in local]


def test_extreme_times_have_an_hour(transform: Any, plan: TransformPlan) -> None:
    times = pa.array([2**63 - 1, -(2**63) + 1, 2**60, -(2**60), 0, 0], pa.int64())
    found = apply(transform, plan, table({**TRAIN, "time_ms": times}))
    assert np.all((found["hour"] >= 1) & (found["hour"] <= 24))
    assert np.all((found["weekday"] >= 1) & (found["weekday"] <= 7))


def test_crosses_keep_pairs_apart_and_miss_where_any_part_does(tmp_path: Path) -> None:
    features: list[FeatureSpec] = [CrossedFeature(kind="crossed", name="ab", columns=("a", "b"), buckets=2**40)]
    rows = table(
        {
            # Pairs that run into each other without lengths, without a mark between length and value, or with the
            # mark inside a value.
            "a": pa.array(
                [b"a", b"ab", b"1:a", b"", b"1", b"10xxxxxxxxx", None, b"a", MISSING_STRING, b"a"], pa.binary()
            ),
            "b": pa.array([b"bc", b"c", b"", b"1:a", b"xxxxxxxxx0", b"", b"c", None, b"c", b"bc"], pa.binary()),
        }
    )
    made = make_plan(features, rows)
    ids = encode_columns(Transform(made, asset_folder=tmp_path), made.schema, features, rows).ids[:, 0]
    assert ids[6:9].tolist() == [0, 0, 0]
    assert ids[0] == ids[9]
    assert len(set(ids[:6].tolist())) == 6
    assert np.all(ids[:6] >= 1)


def test_unknown_tokens_spread_over_the_oov_buckets(transform: Any, plan: TransformPlan) -> None:
    cities = pa.array([f"new{i}".encode() for i in range(200)], pa.binary())
    rows = pa.table({name: column.take(pa.array([0] * 200)) for name, column in TRAIN.items()} | {"city": cities})
    found = apply(transform, plan, rows)
    assert set(found["city"].tolist()) == {1, 2}
    assert len(set(found["city_hash"].tolist())) > 150
    assert np.all((found["city_hash"] >= 1) & (found["city_hash"] <= 1000))


def test_table_sizes_hold_every_id(found: dict[str, npt.NDArray[Any]], plan: TransformPlan) -> None:
    rows = {one.name: one.num_rows for one in plan.schema.tables}
    assert rows == {
        "city": 1 + 2 + 4,
        "items": 1 + 1 + 4,
        "tags": 1 + 1 + 2,
        "tags_long": 1 + 1 + 3,
        "city_hash": 1001,
        "position": 5,
        "cross": 10**6 + 1,
        "hour": 25,
        "weekday": 8,
        "price_bucket": 4,
        "count_bucket": 3,
        "ages": 4,
        "first_age": 3,
        "scores": 4,
    }
    tables = {field.name: field.table for field in plan.schema.id_fields}
    tables |= {field.name: field.table for field in plan.schema.list_fields}
    for name, table_name in tables.items():
        assert 0 <= found[name].min() <= found[name].max() < rows[table_name]


COLUMN = st.lists(st.one_of(st.none(), st.binary(max_size=3)), min_size=4, max_size=4)
INTS = st.lists(
    st.one_of(st.none(), st.sampled_from([5, 7, 0, -1, 2**63 - 1, -(2**63)]), st.integers(0, 9)), min_size=4, max_size=4
)
FLOATS = st.lists(st.one_of(st.none(), st.floats(), st.floats(width=32)), min_size=4, max_size=4)
NUMBER_LISTS = st.lists(
    st.one_of(st.none(), st.lists(st.one_of(st.none(), st.floats()), max_size=4)), min_size=4, max_size=4
)
LISTS = st.lists(
    st.one_of(st.none(), st.lists(st.one_of(st.none(), st.binary(max_size=2)), max_size=6)), min_size=4, max_size=4
)


@settings(deadline=None, max_examples=40)
@given(st.tuples(COLUMN, INTS, FLOATS, LISTS, NUMBER_LISTS))
def test_records_and_requests_get_the_same_inputs(
    transform: Any, plan: TransformPlan, columns: tuple[list[Any], ...]
) -> None:
    cities, numbers, prices, tags, scores = columns
    rows = table(
        {
            "city": pa.array(cities, pa.binary()),
            "item_id": pa.array(numbers, pa.int64()),
            "seen_ids": pa.array([[number] * 4 for number in numbers], pa.list_(pa.int64())),
            "tags": pa.array(tags, pa.list_(pa.binary())),
            "position": pa.array(numbers, pa.int64()),
            "time_ms": pa.array(numbers, pa.int64()),
            "price": pa.array(prices, pa.float64()),
            "count": pa.array(numbers, pa.int64()),
            "age_s": pa.array(
                [[number, 9, number, 60, 1][:i] for i, number in enumerate(numbers)], pa.list_(pa.int64())
            ),
            "scores": pa.array(scores, pa.list_(pa.float64())),
        }
    )
    records = encode_columns(transform, plan.schema, FEATURES, rows)
    requests = apply(transform, plan, rows)
    for i, field in enumerate(plan.schema.id_fields):
        assert records.ids[:, i].tolist() == requests[field.name].tolist()
    for i, name in enumerate(plan.schema.dense):
        assert records.dense[:, i].tolist() == requests[name].tolist()
        assert np.all(np.isfinite(records.dense[:, i]))
    for name, ids in records.lists.items():
        assert ids.tolist() == requests[name].tolist()


def test_slices_chunks_and_dictionaries_encode_alike(transform: Any, plan: TransformPlan) -> None:
    rows = table(TRAIN)
    expected = encode_columns(transform, plan.schema, FEATURES, rows)
    chunked = pa.concat_tables([rows[:1], rows[1:4], rows[4:]])
    coded = chunked.set_column(0, "city", chunked["city"].dictionary_encode())
    for variant in (chunked, coded):
        found = encode_columns(transform, plan.schema, FEATURES, variant)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.dense, expected.dense)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "_PIECE_ROWS", 2)  # most columns end before the longest does
        found = encode_columns(transform, plan.schema, FEATURES, rows)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.dense, expected.dense)
    assert all(np.array_equal(found.lists[name], ids) for name, ids in expected.lists.items())
    part = encode_columns(transform, plan.schema, FEATURES, rows[2:5])
    np.testing.assert_array_equal(part.ids, expected.ids[2:5])
    np.testing.assert_array_equal(part.lists["tags"], expected.lists["tags"][2:5])


def test_labels_and_weights_come_from_their_columns(transform: Any, plan: TransformPlan) -> None:
    rows = table(TRAIN)
    assert encode_columns(transform, plan.schema, FEATURES, rows).weight.tolist() == [1.0] * 6
    weighted = rows.append_column("__weight", pa.array([0.5, 2.0, 0.0, 1.0, 1.0, 3.0], pa.float32()))
    found = encode_columns(transform, plan.schema, FEATURES, weighted)
    assert found.weight.tolist() == [0.5, 2.0, 0.0, 1.0, 1.0, 3.0]
    assert found.labels.tolist() == [[1.0]] * 6
    with pytest.raises(DataError, match="__label_click"):
        encode_columns(transform, plan.schema, FEATURES, rows.drop_columns(["__label_click"]))
    hole = rows.set_column(rows.num_columns - 1, "__label_click", pa.array([1.0, None] * 3, pa.float32()))
    with pytest.raises(DataError, match="3 nulls"):
        encode_columns(transform, plan.schema, FEATURES, hole)


def test_the_text_form_is_equal_for_equal_transforms_only(plan: TransformPlan, folder: Path) -> None:
    text = json.loads((folder / TRANSFORM_FILE).read_text())
    assert text == json.loads(json.dumps(make_plan(FEATURES, table(TRAIN)).canonical()))
    other = table({**TRAIN, "price": pa.array([1.0, 3.0, None, NAN, 5.0, 7.001])})
    assert text != json.loads(json.dumps(make_plan(FEATURES, other).canonical()))


def test_a_folder_without_a_transform_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="holds no transform"):
        load_transform(tmp_path)
    (tmp_path / TRANSFORM_FILE).write_text("{}")
    with pytest.raises(ArtefactError, match="cannot be loaded"):
        load_transform(tmp_path)


class _Served(tf.Module):
    """As the exporter does it: the loaded transform inside another module, called by its signature."""

    def __init__(self, transform: Any, plan: TransformPlan) -> None:
        super().__init__()
        self.transform = transform
        dtypes = {"string": tf.string, "int64": tf.int64, "float32": tf.float32}
        specs = {
            raw.name: tf.TensorSpec([None] if raw.length is None else [None, raw.length], dtypes[raw.dtype], raw.name)
            for raw in plan.schema.raw_columns
        }
        self.serve = tf.function(lambda **raw: dict(self.transform(raw)))
        self.signature = self.serve.get_concrete_function(**specs)


def test_the_graph_serves_inside_another_model_after_everything_moved(
    plan: TransformPlan, found: dict[str, npt.NDArray[Any]], folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "first")
    served = _Served(load_transform(tmp_path / "first"), plan)
    tf.saved_model.save(served, str(tmp_path / "second"), signatures=served.signature)
    shutil.move(tmp_path / "second", tmp_path / "moved")
    shutil.rmtree(tmp_path / "first")
    raw = raw_tensors(table(TRAIN), plan.schema.raw_columns)
    expected = np.stack([found[field.name] for field in plan.schema.id_fields], axis=1)

    loaded = tf.saved_model.load(str(tmp_path / "moved"))
    outputs = loaded.signatures["serving_default"](**{name: tf.constant(value) for name, value in raw.items()})
    np.testing.assert_array_equal(outputs["ids"], expected)

    # What a model server does: a session on the graph with the tag `serve`.
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path / "moved"))
        signature = meta.signature_def["serving_default"]
        feeds = {signature.inputs[name].name: value for name, value in raw.items()}
        ids, tags = session.run([signature.outputs["ids"].name, signature.outputs["list/tags"].name], feeds)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(tags, found["tags"])


def test_two_transforms_in_one_process_keep_their_own_tables(
    transform: Any, plan: TransformPlan, found: dict[str, npt.NDArray[Any]], tmp_path: Path
) -> None:
    other_rows = table({"city": pa.array([b"Oslo"] * 5 + [b"Rome"], pa.binary())})
    other = make_plan(FEATURES[:1], other_rows)
    save_transform(other, tmp_path / "other")
    loaded = load_transform(tmp_path / "other")
    assert apply(loaded, other, other_rows)["city"].tolist() == [3] * 5 + [4]
    assert apply(transform, plan, table(TRAIN))["city"].tolist() == found["city"].tolist()


def test_no_vocabulary_is_a_constant_of_the_graph(folder: Path, tmp_path: Path) -> None:
    rows = table({"city": pa.array([f"a-rather-long-token-{i:06d}".encode() for i in range(20_000)], pa.binary())})
    save_transform(make_plan(FEATURES[:1], rows), tmp_path / "large")
    assert (tmp_path / "large" / "saved_model.pb").stat().st_size < 100_000
    assert (tmp_path / "large" / "assets" / "vocabulary-00000.tensor").stat().st_size > 20_000 * 26


def test_a_vocabulary_without_tokens_leaves_missing_and_unknown(tmp_path: Path) -> None:
    feature = CategoricalFeature(kind="categorical", name="city", min_count=1000)
    rows = pa.table({"city": pa.array([b"Rome", None], pa.binary())})
    types = {"city": pa.binary()}
    made = plan_transform([feature], analysis.analyse(rows, [feature]), time_zone="UTC", labels=["y"], raw_types=types)
    save_transform(made, tmp_path / "transform")
    inputs = load_transform(tmp_path / "transform")({"city": tf.constant([b"Rome", MISSING_STRING, b""])})
    assert inputs[IDS_KEY].numpy().tolist() == [[1], [0], [1]]
