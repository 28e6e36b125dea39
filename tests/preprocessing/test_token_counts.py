from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.token_counts import TokenCounts, count_tokens, merge_counts

BINARY = st.lists(st.one_of(st.none(), st.binary(max_size=4)), max_size=30)


def as_dict(counts: TokenCounts) -> dict[bytes, int]:
    return dict(zip(counts.tokens.to_pylist(), counts.counts.tolist(), strict=True))


@given(BINARY)
def test_counts_are_those_of_a_counter(values: list[bytes | None]) -> None:
    expected = Counter(value for value in values if value not in (None, b"\x00"))
    assert as_dict(count_tokens(pa.array(values, pa.binary()))) == expected


@given(st.lists(BINARY, max_size=5))
def test_merged_counts_are_those_of_all_values(parts: list[list[bytes | None]]) -> None:
    merged = merge_counts([count_tokens(pa.array(part, pa.binary())) for part in parts])
    expected = Counter(value for part in parts for value in part if value not in (None, b"\x00"))
    assert as_dict(merged) == expected


def test_integers_are_counted_as_decimal_text() -> None:
    values = pa.array([7, -3, 7, None, -(2**63), 2**63 - 1], pa.int64())
    assert as_dict(count_tokens(values)) == {b"7": 2, b"-3": 1, b"9223372036854775807": 1}


def test_dictionary_and_chunked_columns_count_alike() -> None:
    plain = pa.array([b"a", None, b"b", b"a"], pa.binary())
    chunked = pa.chunked_array([plain[:1], plain[1:]])
    assert as_dict(count_tokens(plain.dictionary_encode())) == {b"a": 2, b"b": 1}
    assert as_dict(count_tokens(chunked)) == {b"a": 2, b"b": 1}


def test_text_and_integer_tokens_share_counts() -> None:
    text, numbers = count_tokens(pa.array([b"7"], pa.binary())), count_tokens(pa.array([7, 8], pa.int64()))
    assert as_dict(merge_counts([text, numbers])) == {b"7": 2, b"8": 1}
