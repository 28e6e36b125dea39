import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.hashing import combine, hash_column, mix

LIMITS = settings(deadline=None, max_examples=60)  # machines under test are busy

HOSTILE = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.sampled_from([b"", b"\x00", b"\x00\x00", b"a" * 8, b"a" * 9, b"a" * 128, b"a" * 129, b"\xff" * 300, b"a\x00"]),
)


@LIMITS
@given(st.lists(HOSTILE, max_size=40), st.data())
def test_equal_bytes_hash_equal_and_others_differ(values: list[bytes | None], data: st.DataObject) -> None:
    array = pa.array(values, pa.binary())
    hashes = hash_column(array).tolist()
    assert len(hashes) == len(values)
    assert len(set(hashes)) == len(set(values))
    assert all((hashes[i] == hashes[0]) == (values[i] == values[0]) for i in range(len(values)))
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    assert hash_column(array.slice(start, stop - start)).tolist() == hashes[start:stop]
    assert hash_column(array.dictionary_encode()).tolist() == hashes
    assert hash_column(array.cast(pa.large_binary())).tolist() == hashes
    assert hash_column(pa.chunked_array([array[:start], array[start:]], pa.binary())).tolist() == hashes


@LIMITS
@given(st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.binary(max_size=3)), max_size=4)), max_size=20))
def test_lists_hash_by_their_elements(values: list[list[bytes | None] | None]) -> None:
    array = pa.array(values, pa.list_(pa.binary()))
    hashes = hash_column(array).tolist()
    keys = [None if value is None else tuple(value) for value in values]
    assert len(set(hashes)) == len(set(keys))
    assert hash_column(array.slice(1)).tolist() == hashes[1:]
    assert hash_column(array.cast(pa.large_list(pa.binary()))).tolist() == hashes


def test_integers_hash_by_value_whatever_their_width() -> None:
    values = [0, 1, 5, 127, None]
    expected = hash_column(pa.array(values, pa.int64())).tolist()
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint64(), pa.timestamp("ms")):
        assert hash_column(pa.array(values, kind)).tolist() == expected
    extremes = pa.array([-(2**63), 2**63 - 1, -1, 0], pa.int64())
    assert len(set(hash_column(extremes).tolist())) == 4


def test_floats_hash_by_value() -> None:
    negative_nan = np.array([0xFFF8_0000_0000_0001], np.uint64).view(np.float64)[0]
    hashes = hash_column(pa.array([0.0, -0.0, float("nan"), negative_nan, 1.5, None], pa.float64()))
    assert hashes[0] == hashes[1]
    assert hashes[2] == hashes[3]
    assert len(set(hashes.tolist())) == 4
    assert hash_column(pa.array([1.5], pa.float32()))[0] == hashes[4]


def test_null_in_a_dictionary_is_the_null_of_a_plain_column() -> None:
    plain = hash_column(pa.array([None, b"a"], pa.binary()))
    hidden = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([None, b"a"], pa.binary()))
    assert hash_column(hidden).tolist() == [plain[0], plain[1], plain[0]]
    assert hash_column(pa.nulls(1))[0] == plain[0]


def test_garbage_under_a_null_does_not_matter() -> None:
    mask = pa.py_buffer(b"\x01")
    first = pa.Array.from_buffers(pa.int64(), 2, [mask, pa.py_buffer(np.array([7, 1]).tobytes())])
    second = pa.Array.from_buffers(pa.int64(), 2, [mask, pa.py_buffer(np.array([7, 2]).tobytes())])
    assert hash_column(first).tolist() == hash_column(second).tolist()


def test_hash_is_the_published_splitmix64() -> None:
    # First outputs of splitmix64 seeded with 0, as its reference code gives: state + golden ratio, then the finaliser.
    assert mix(np.zeros(1, np.uint64))[0] == 0xE220A8397B1DCDAF
    assert mix(np.array([0x9E3779B97F4A7C15], np.uint64))[0] == 0x6E789E6AA1B965F4


def test_combination_depends_on_order() -> None:
    a, b = hash_column(pa.array([1], pa.int64())), hash_column(pa.array([2], pa.int64()))
    assert combine(a, b)[0] != combine(b, a)[0]


@pytest.mark.parametrize("kind", [pa.binary(), pa.int64(), pa.float64(), pa.list_(pa.int64()), pa.bool_()])
def test_an_empty_column_has_no_hashes(kind: pa.DataType) -> None:
    assert len(hash_column(pa.array([], kind))) == 0
    assert len(hash_column(pa.chunked_array([], kind))) == 0


def test_hashes_spread_evenly_over_partitions() -> None:
    text = pa.array([b"user_%d" % i for i in range(64_000)], pa.binary())
    for column in (text, pa.array(np.arange(64_000))):
        counts = np.bincount((hash_column(column) % np.uint64(64)).astype(int), minlength=64)
        assert abs(counts - 1000).max() < 6 * np.sqrt(1000)
