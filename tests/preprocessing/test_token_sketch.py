import itertools
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.hashing import hash_column
from preprocessing.token_counts import count_tokens
from preprocessing.token_sketch import TEXT_BYTES, TokenSketch, merge_sketches, sketch_numbers, sketch_tokens

TOKENS = st.lists(st.binary(min_size=2, max_size=3), max_size=40)
CAPACITY = 8


def sketch(values: list[bytes], capacity: int = CAPACITY) -> TokenSketch:
    counts = count_tokens(pa.array(values, pa.binary()))
    return sketch_tokens(counts.tokens, counts.counts, capacity=capacity)


def as_dict(found: TokenSketch) -> dict[bytes, int]:
    return dict(zip(found.texts.to_pylist(), found.counts.tolist(), strict=True))


def same(first: TokenSketch, second: TokenSketch) -> bool:
    return (
        first.hashes.tolist() == second.hashes.tolist()
        and as_dict(first) == as_dict(second)
        and (first.total, first.is_exact) == (second.total, second.is_exact)
    )


@settings(deadline=None)
@given(TOKENS)
def test_it_holds_the_tokens_of_smallest_hash_with_their_counts(values: list[bytes]) -> None:
    found = sketch(values)
    hashes = {token: int(hash_column(pa.array([token]))[0]) for token in values}
    kept = sorted(hashes, key=lambda token: hashes[token])[:CAPACITY]
    assert as_dict(found) == {token: Counter(values)[token] for token in kept}
    assert found.hashes.tolist() == [hashes[token] for token in kept]
    assert found.total == len(values)
    assert found.is_exact == (len(hashes) <= CAPACITY)


@settings(deadline=None)
@given(TOKENS, st.lists(st.integers(0, 40), max_size=4), st.randoms())
def test_neither_cuts_nor_order_change_it(values: list[bytes], cuts: list[int], random: object) -> None:
    bounds = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    parts = [sketch(values[low:high]) for low, high in itertools.pairwise(bounds)]
    random.shuffle(parts)  # type: ignore[attr-defined]
    merged = parts[0]
    for part in parts[1:]:
        merged = merge_sketches([merged, part], capacity=CAPACITY)
    assert same(merged, sketch(values))
    assert same(merge_sketches(parts, capacity=CAPACITY), sketch(values))


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.float32()])
@settings(deadline=None)
@given(values=st.lists(st.integers(-50, 50), max_size=60))
def test_numbers_are_kept_like_tokens(kind: pa.DataType, values: list[int]) -> None:
    array = pa.array(values, kind)
    counted = array.value_counts()
    distinct, counts = counted.field("values"), counted.field("counts").to_numpy().astype(np.int64)
    expected = sketch_tokens(distinct, counts, capacity=CAPACITY)
    assert same(sketch_numbers(array, capacity=CAPACITY), expected)


def test_the_number_of_distinct_tokens_is_estimated_within_four_standard_errors() -> None:
    capacity, distinct = 1000, 50_000
    found = sketch([str(number).encode() for number in range(distinct)], capacity)
    assert not found.is_exact
    assert len(found.hashes) == capacity
    assert abs(found.distinct() / distinct - 1) < 4 / np.sqrt(capacity - 2)


def test_few_tokens_are_counted_exactly() -> None:
    assert sketch([b"a", b"b", b"a"]).distinct() == 2
    assert sketch([]).distinct() == 0


def test_long_tokens_are_told_apart_by_their_whole_and_shown_by_their_beginning() -> None:
    long = b"x" * 1_000_000
    found = sketch([long + b"1", long + b"2", long + b"1"])
    assert sorted(found.counts.tolist()) == [1, 2]
    assert found.texts.to_pylist() == [b"x" * TEXT_BYTES] * 2
    assert found.texts.nbytes < 2000


def test_samples_can_be_cut_to_the_tokens_that_both_hold() -> None:
    few = [str(number).encode() for number in range(30)]
    many = [str(number).encode() for number in range(60)]
    one, two = sketch(few), sketch(many)
    limit = min(one.complete_to(), two.complete_to())
    shared = {token for token in few if int(hash_column(pa.array([token]))[0]) <= int(limit)}
    assert set(as_dict(one.up_to(limit))) == shared
    assert set(as_dict(two.up_to(limit))) >= shared
    assert one.up_to(limit).total == len(shared)
