import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.epochs import (
    Segment,
    num_steps,
    num_streams,
    plan_epoch,
    shuffle_keys,
    skip_rows,
    stream_seeds,
    window_rows,
)

shards_and_streams = st.tuples(st.lists(st.integers(0, 50), max_size=8), st.integers(1, 16))


def rows_of(segments: tuple[Segment, ...]) -> list[tuple[int, int]]:
    return [(segment.shard, segment.start + place) for segment in segments for place in range(segment.count)]


@given(shards_and_streams, st.integers(0, 2**40), st.integers(0, 5))
@settings(max_examples=200, deadline=None)
def test_every_row_is_in_exactly_one_stream(case: tuple[list[int], int], seed: int, epoch: int) -> None:
    shard_rows, streams = case
    plan = plan_epoch(shard_rows, seed=seed, epoch=epoch, num_streams=streams)
    rows = [row for segments in plan for row in rows_of(segments)]
    assert sorted(rows) == [(shard, row) for shard, count in enumerate(shard_rows) for row in range(count)]


@given(shards_and_streams, st.integers(0, 2**40))
@settings(max_examples=200, deadline=None)
def test_streams_differ_by_at_most_one_row_and_hold_no_empty_segment(case: tuple[list[int], int], seed: int) -> None:
    shard_rows, streams = case
    plan = plan_epoch(shard_rows, seed=seed, epoch=0, num_streams=streams)
    sizes = [len(rows_of(segments)) for segments in plan]
    assert len(plan) == streams
    assert max(sizes) - min(sizes) <= 1
    assert all(segment.count > 0 for segments in plan for segment in segments)


@given(st.integers(0, 10_000), st.integers(1, 300))
@settings(max_examples=200, deadline=None)
def test_every_stream_fits_the_steps_of_the_epoch(num_rows: int, batch_size: int) -> None:
    streams = num_streams(batch_size)
    longest = -(-num_rows // streams)
    assert batch_size % streams == 0
    assert num_steps(num_rows, batch_size) == -(-longest // (batch_size // streams))


@given(shards_and_streams, st.integers(0, 60))
@settings(max_examples=100, deadline=None)
def test_what_is_left_after_skipping_is_the_tail_of_the_stream(case: tuple[list[int], int], skipped: int) -> None:
    shard_rows, streams = case
    for segments in plan_epoch(shard_rows, seed=3, epoch=1, num_streams=streams):
        assert rows_of(skip_rows(segments, skipped)) == rows_of(segments)[skipped:]


def test_the_order_follows_from_seed_and_epoch() -> None:
    rows = [40, 30, 20, 10, 50]
    plan = plan_epoch(rows, seed=1, epoch=2, num_streams=4)
    assert plan == plan_epoch(list(rows), seed=1, epoch=2, num_streams=4)
    assert plan != plan_epoch(rows, seed=1, epoch=3, num_streams=4)
    assert plan != plan_epoch(rows, seed=2, epoch=2, num_streams=4)


def test_a_single_shard_starts_elsewhere_in_each_epoch() -> None:
    starts = {plan_epoch([1000], seed=0, epoch=epoch, num_streams=1)[0][0].start for epoch in range(8)}
    assert len(starts) > 4


@pytest.mark.parametrize(("batch_size", "expected"), [(4096, 16), (8, 8), (24, 8), (7, 1), (1, 1)])
def test_the_number_of_streams_divides_the_batch(batch_size: int, expected: int) -> None:
    assert num_streams(batch_size) == expected


def test_a_window_holds_whole_batches() -> None:
    assert window_rows(32, 100) == 6  # 2 rows of each of 16 streams a batch, 3 batches in 100 rows
    assert window_rows(32, 0) == 2


def test_shuffle_keys_are_splitmix64() -> None:
    # The first outputs of SplitMix64 with seed 0, as published with the generator; place 1 is its first state.
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    keys = shuffle_keys(np.uint64(0), np.array([1, 2, 3], np.int64))
    assert keys.tolist() == [value >> 1 for value in expected]
    assert keys.dtype == np.int64


def test_streams_are_shuffled_differently() -> None:
    seeds = stream_seeds(seed=5, epoch=0, num_streams=16)
    assert len(set(seeds.tolist())) == 16
    assert seeds.tolist() != stream_seeds(seed=5, epoch=1, num_streams=16).tolist()
