import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.errors import ArtefactError, CorruptError, DataError
from preprocessing.profile import Profile, label_rate, merge_profiles, profile
from preprocessing.profile_state import from_bytes, load_profile, to_bytes

SCHEMA = pa.schema(
    [
        ("user", pa.binary()),
        ("price", pa.float64()),
        ("time", pa.int64()),
        ("tags", pa.list_(pa.binary())),
        ("ages", pa.list_(pa.int64())),
        ("__label_click", pa.float32()),
        ("__weight", pa.float32()),
    ]
)
NUMBERS = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf, -math.inf]))
INTEGERS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=4)),
        NUMBERS,
        INTEGERS,
        st.one_of(st.none(), st.lists(st.one_of(st.none(), st.binary(max_size=2)), max_size=3)),
        st.one_of(st.none(), st.lists(st.integers(0, 9), max_size=3)),
        st.sampled_from([0.0, 1.0]),
        st.just(1.0),
    ),
    max_size=20,
)


def table(rows: list[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    arrays = [pa.array(list(values), field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def of(rows: list[tuple[object, ...]]) -> Profile:
    return profile(table(rows), ["click"])


HAND = of(
    [
        (b"a", 1.5, 10, [b"x", b"y"], [1], 1.0, 1.0),
        (b"a", math.nan, -20, [], None, 0.0, 2.0),
        (None, math.inf, None, None, [1, 2, 3], 0.0, 1.0),
        (b"", -2.5, -(2**63), [b"x"], [], 0.0, 1.0),
    ]
)


def test_missing_nan_and_infinite_values_are_counted_apart() -> None:
    price = HAND.columns["price"]
    assert (price.num_missing, price.num_nan, price.num_infinite) == (0, 1, 1)
    assert price.missing_share() == 0.5
    assert (price.smallest, price.largest) == (-2.5, 1.5)
    assert price.tokens.total == 2
    user = HAND.columns["user"]
    assert (user.num_missing, user.missing_share()) == (1, 0.25)
    assert set(user.tokens.texts.to_pylist()) == {b"a", b""}


def test_the_marker_of_a_missing_number_is_missing() -> None:
    time = HAND.columns["time"]
    assert (time.num_missing, time.smallest, time.largest) == (2, -20.0, 10.0)


def test_a_list_is_missing_when_it_has_no_elements() -> None:
    tags, ages = HAND.columns["tags"], HAND.columns["ages"]
    assert (tags.kind, tags.num_rows, tags.num_missing, tags.missing_share()) == ("list of text", 4, 2, 0.5)
    assert dict(zip(tags.tokens.texts.to_pylist(), tags.tokens.counts.tolist(), strict=True)) == {b"x": 2, b"y": 1}
    assert tags.lengths is not None
    assert dict(zip(tags.lengths.edges().tolist(), tags.lengths.counts.tolist(), strict=True)) == {0: 2, 1: 1, 2: 1}
    assert (ages.kind, ages.largest, ages.tokens.total) == ("list of numbers", 3.0, 4)


def test_the_label_rate_is_the_share_of_ones() -> None:
    assert label_rate(HAND, "click") == 0.25
    assert label_rate(of([]), "click") is None


def test_dictionary_columns_are_profiled_like_plain_ones() -> None:
    rows: list[tuple[object, ...]] = [
        (b"a", 1.0, 1, [b"x", b"y"], [1], 1.0, 1.0),
        (None, 1.0, 1, [b"x"], [2], 0.0, 1.0),
    ]
    plain = table(rows)
    coded = plain.set_column(0, "user", plain["user"].combine_chunks().dictionary_encode())
    tags = plain["tags"].combine_chunks()
    lists = pa.ListArray.from_arrays(tags.offsets, tags.values.dictionary_encode())
    coded = coded.set_column(3, "tags", lists)
    assert to_bytes(profile(coded, ["click"])) == to_bytes(profile(plain, ["click"]))


def test_minus_zero_is_zero_whichever_comes_first() -> None:
    rows: list[tuple[object, ...]] = [(None, zero, None, None, None, 0.0, 1.0) for zero in (0.0, -0.0)]
    assert to_bytes(of(rows)) == to_bytes(of(rows[::-1]))
    assert of(rows).columns["price"].tokens.texts.to_pylist() == [b"0"]


@settings(max_examples=30, deadline=None)
@given(ROWS, st.integers(0, 20), st.integers(0, 20))
def test_neither_cuts_nor_order_change_a_byte_of_the_state(rows: list[tuple[object, ...]], a: int, b: int) -> None:
    low, high = sorted((min(a, len(rows)), min(b, len(rows))))
    one, two, three = of(rows[:low]), of(rows[low:high]), of(rows[high:])
    whole = to_bytes(of(rows))
    assert to_bytes(merge_profiles([one, two, three])) == whole
    assert to_bytes(merge_profiles([merge_profiles([three, one]), two])) == whole
    assert to_bytes(of(rows[::-1])) == whole


@settings(max_examples=30, deadline=None)
@given(ROWS)
def test_bytes_and_back_is_the_same_profile(rows: list[tuple[object, ...]]) -> None:
    state = to_bytes(of(rows))
    assert to_bytes(from_bytes(state)) == state


def test_what_is_no_profile_is_refused() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), sink)
    for data in (b"", b"PAR1", to_bytes(HAND)[:-7], sink.getvalue().to_pybytes()):
        with pytest.raises(CorruptError, match="cannot be read"):
            from_bytes(data)


def test_files_are_merged_to_one_profile(tmp_path: Path) -> None:
    rows: list[tuple[object, ...]] = [
        (str(number).encode(), float(number), number, [], [], number % 2.0, 1.0) for number in range(40)
    ]
    paths = [tmp_path / f"{number}.parquet" for number in range(20)]
    for number, path in enumerate(paths):
        path.write_bytes(to_bytes(of(rows[2 * number : 2 * number + 2])))
    assert to_bytes(load_profile(paths[::-1])) == to_bytes(of(rows))
    paths[3].write_bytes(b"spoiled")
    with pytest.raises(CorruptError, match=r"3\.parquet"):
        load_profile(paths)
    with pytest.raises(ArtefactError, match="no profile"):
        load_profile([])
    with pytest.raises(ArtefactError, match="absent"):
        load_profile([tmp_path / "absent"])


def test_profiles_of_other_columns_do_not_merge() -> None:
    other = profile(table([]).drop_columns(["user"]), ["click"])
    with pytest.raises(ArtefactError, match="other columns"):
        merge_profiles([HAND, other])


def test_a_label_without_a_column_and_a_strange_type_are_refused() -> None:
    with pytest.raises(DataError, match="__label_buy"):
        profile(table([]), ["buy"])
    with pytest.raises(DataError, match="'when' is of type date32"):
        profile(pa.table({"when": pa.array([1], pa.date32())}), [])


def test_memory_of_a_column_is_bounded() -> None:
    rng = np.random.default_rng(7)
    numbers = rng.normal(size=300_000)
    text = pa.array(rng.permutation(100_000)).cast(pa.string()).cast(pa.binary())
    found = profile(pa.table({"number": numbers[:100_000], "text": text}), [])
    assert len(found.columns["number"].tokens.hashes) == 4096
    assert len(found.columns["text"].tokens.hashes) == 65_536
    assert abs(found.columns["text"].tokens.distinct() / 100_000 - 1) < 4 / math.sqrt(65_534)
    assert len(to_bytes(found)) < 1_500_000
