from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.analysis import analyse, to_bytes
from preprocessing.columnar import duplicate_free, find, hash_rows, key_codes
from preprocessing.dictionaries import DICTIONARY, as_one_array, canonical, decoded, encode_text, known_indices
from preprocessing.errors import DataError
from preprocessing.spec import CategoricalFeature, CrossedFeature, FeatureSpec, HashedFeature
from preprocessing.token_counts import TokenCounts, count_tokens

LIMITS = settings(deadline=None, max_examples=60)
TEXT = st.one_of(
    st.none(), st.sampled_from([b"", b"\x00", b"a", b"a\x00", b"\xff\xfe", b"\n", b"x" * 300]), st.binary(max_size=3)
)


@st.composite
def columns(draw: Any) -> tuple[list[bytes | None], pa.ChunkedArray]:
    """Values, and the same as chunks that have dictionaries in any order, with unused values and hidden nulls."""
    values, chunks = [], []
    for _ in range(draw(st.integers(0, 3))):
        part = draw(st.lists(TEXT, max_size=8))
        words = draw(st.permutations(list({*part, b"unused", None} - ({None} if draw(st.booleans()) else set()))))
        indices = [None if value is None and draw(st.booleans()) else value for value in part]
        places = [None if value is None and None not in words else words.index(value) for value in indices]
        array = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(words, pa.binary()))
        start = draw(st.integers(0, len(part)))
        values += part[start:]
        chunks.append(array.slice(start))
    return values, pa.chunked_array(chunks, DICTIONARY)


def plain(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


@LIMITS
@given(columns())
def test_one_array_has_the_values_of_all_chunks(case: tuple[list[bytes | None], pa.ChunkedArray]) -> None:
    values, column = case
    array = as_one_array(column)
    assert array.type == DICTIONARY
    assert array.to_pylist() == values
    assert decoded(array).to_pylist() == values
    assert decoded(column).to_pylist() == values
    words = [*array.dictionary.to_pylist(), None]
    assert [words[i] for i in known_indices(array)] == values


@LIMITS
@given(columns())
def test_a_canonical_dictionary_follows_from_the_values_alone(
    case: tuple[list[bytes | None], pa.ChunkedArray],
) -> None:
    values, column = case
    array = canonical(as_one_array(column))
    assert array.to_pylist() == values
    assert array.dictionary.to_pylist() == list(dict.fromkeys(value for value in values if value is not None))
    assert array.indices.null_count == values.count(None)


@LIMITS
@given(columns())
def test_every_text_type_is_encoded_alike(case: tuple[list[bytes | None], pa.ChunkedArray]) -> None:
    values, column = case
    table = pa.table({"d": column, "p": plain(values), "l": pa.array(values, pa.large_binary())})
    encoded = encode_text(table.append_column("n", pa.array(range(len(values)), pa.int64())))
    for name in ("d", "p", "l"):
        assert encoded[name].type == DICTIONARY
        assert encoded[name].num_chunks <= 1
        assert encoded[name].equals(encoded["d"])
        assert encoded[name].to_pylist() == values
    assert encoded["n"].to_pylist() == list(range(len(values)))


@LIMITS
@given(columns())
def test_hashes_and_duplicates_are_those_of_plain_columns(case: tuple[list[bytes | None], pa.ChunkedArray]) -> None:
    values, column = case
    number = pa.array([i % 2 for i in range(len(values))], pa.int64())
    by_index, by_value = pa.table({"a": column, "b": number}), pa.table({"a": plain(values), "b": number})
    np.testing.assert_array_equal(hash_rows(by_index, ["a", "b"]), hash_rows(by_value, ["a", "b"]))
    for key in (None, ["a"]):
        wanted = duplicate_free(by_value, key=key, order=("a",))
        np.testing.assert_array_equal(duplicate_free(by_index, key=key, order=("a",)), wanted)


@LIMITS
@given(columns(), columns())
def test_keys_meet_whatever_their_dictionaries(
    left: tuple[list[bytes | None], pa.ChunkedArray], right: tuple[list[bytes | None], pa.ChunkedArray]
) -> None:
    last = {value: row for row, value in enumerate(right[0]) if value is not None}
    wanted = [last.get(value, -1) if value is not None else -1 for value in left[0]]
    sides = [(pa.table({"k": plain(values)}), pa.table({"k": column})) for values, column in (left, right)]
    for keys in sides[0]:
        for table in sides[1]:
            assert find(keys, table, on=["k"]).tolist() == wanted
            codes = key_codes(keys, table, ["k"])
            assert [code < 0 for code in codes[0].tolist()] == [place < 0 for place in wanted]


def test_keys_of_different_types_are_refused() -> None:
    text = pa.table({"k": plain([b"1"]).dictionary_encode()})
    with pytest.raises(DataError, match="'k' is binary on one side and int64"):
        key_codes(text, pa.table({"k": [1]}), ["k"])


def counts(found: TokenCounts) -> dict[bytes, int]:
    assert len(set(found.tokens.to_pylist())) == len(found)
    return dict(zip(found.tokens.to_pylist(), found.counts.tolist(), strict=True))


@LIMITS
@given(columns())
def test_tokens_are_counted_without_nulls_markers_and_unused_values(
    case: tuple[list[bytes | None], pa.ChunkedArray],
) -> None:
    values, column = case
    wanted = {value: values.count(value) for value in values if value not in (None, b"\x00")}
    assert counts(count_tokens(column)) == wanted
    assert counts(count_tokens(as_one_array(column))) == wanted
    assert counts(count_tokens(plain(values))) == wanted


@LIMITS
@given(columns())
def test_an_analysis_is_that_of_plain_columns(case: tuple[list[bytes | None], pa.ChunkedArray]) -> None:
    values, column = case
    features: list[FeatureSpec] = [
        CategoricalFeature(kind="categorical", name="a"),
        HashedFeature(kind="hashed", name="h", column="a", buckets=7),
        CrossedFeature(kind="crossed", name="x", columns=("a", "b"), buckets=7),
    ]
    numbers = pa.array([None if i % 3 else i for i in range(len(values))], pa.int64())
    by_index = encode_text(pa.table({"a": column, "b": numbers}))
    found = [to_bytes(analyse(table, features)) for table in (by_index, pa.table({"a": plain(values), "b": numbers}))]
    assert found[0] == found[1]
