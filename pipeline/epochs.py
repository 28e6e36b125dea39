"""The row order of an epoch: a function of (seed, epoch, rows of each shard, batch size) alone.

Shards are put in an order of (seed, epoch), the row sequence so made is rotated, and cut into S nearly equal
contiguous streams. Each global batch takes the next `batch_size / S` rows of every stream, so a batch mixes S
places of the data, and a worker that owns some of the batch reads some of the streams. Within a stream, rows are
shuffled in windows by a key that is a function of (seed, epoch, stream, place in the stream). Nothing here knows of
replicas or workers; a run can start at any step by arithmetic.

Shapes: S streams.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

__all__ = [
    "GOLDEN",
    "MIX_1",
    "MIX_2",
    "Segment",
    "num_steps",
    "num_streams",
    "plan_epoch",
    "shuffle_keys",
    "skip_rows",
    "stream_seeds",
    "window_rows",
]

MAX_STREAMS = 16
GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB


@dataclasses.dataclass(frozen=True)
class Segment:
    """Consecutive rows of one shard."""

    shard: int
    start: int
    count: int


def num_streams(batch_size: int) -> int:
    """Returns S for a global batch: the greatest common divisor with 16, so that streams share it equally."""
    return math.gcd(batch_size, MAX_STREAMS)


def num_steps(num_rows: int, batch_size: int) -> int:
    """Returns the steps of an epoch; the last batch may be short (and is padded)."""
    return -(-num_rows // batch_size)


def window_rows(batch_size: int, shuffle_rows: int) -> int:
    """Returns the rows of a stream that are shuffled together: whole batches' worth, at least one."""
    return batch_size // num_streams(batch_size) * max(1, shuffle_rows // batch_size)


def plan_epoch(
    shard_rows: Sequence[int], *, seed: int, epoch: int, num_streams: int
) -> tuple[tuple[Segment, ...], ...]:
    """Returns the segments of each stream, in order; every row is in exactly one segment.

    Streams differ in length by at most one row.
    """
    order = sorted(range(len(shard_rows)), key=lambda shard: (_number(seed, epoch, "shard", shard), shard))
    bounds = np.concatenate([[0], np.cumsum([shard_rows[shard] for shard in order], dtype=np.int64)])
    total = int(bounds[-1])
    offset = _number(seed, epoch, "offset", 0) % max(total, 1)
    cuts = [offset + total * stream // num_streams for stream in range(num_streams + 1)]
    return tuple(
        tuple(_wrapped(order, bounds, start=cuts[stream], stop=cuts[stream + 1])) for stream in range(num_streams)
    )


def skip_rows(segments: Sequence[Segment], num_rows: int) -> tuple[Segment, ...]:
    """Returns what is left of a stream after its first `num_rows` rows."""
    left, kept = num_rows, []
    for segment in segments:
        dropped = min(left, segment.count)
        left -= dropped
        if dropped < segment.count:
            kept.append(Segment(segment.shard, segment.start + dropped, segment.count - dropped))
    return tuple(kept)


def stream_seeds(*, seed: int, epoch: int, num_streams: int) -> npt.NDArray[np.uint64]:
    """Returns the seed of each stream's shuffle, shape [S]."""
    return np.array([_number(seed, epoch, "stream", stream) for stream in range(num_streams)], np.uint64)


def shuffle_keys(stream_seed: np.uint64, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the key that a window's rows are sorted by, of each place in the stream; at least 0.

    The finaliser of SplitMix64 (Steele, Lea and Flood, 2014) on seed + place * golden ratio, without its lowest bit.
    """
    with np.errstate(over="ignore"):
        key = stream_seed + places.astype(np.uint64) * np.uint64(GOLDEN)
        key = (key ^ (key >> np.uint64(30))) * np.uint64(MIX_1)
        key = (key ^ (key >> np.uint64(27))) * np.uint64(MIX_2)
    return ((key ^ (key >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)


def _number(seed: int, epoch: int, name: str, index: int) -> int:
    """Returns 64 bits that follow from the arguments alone."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{epoch}/{name}/{index}".encode()).digest()[:8], "little")


def _wrapped(order: Sequence[int], bounds: npt.NDArray[np.int64], *, start: int, stop: int) -> Iterator[Segment]:
    """Yields the segments of places start to stop of the sequence of shards, going round at its end."""
    total = int(bounds[-1])
    if start < total:
        yield from _segments(order, bounds, start=start, stop=min(stop, total))
    if stop > total:
        yield from _segments(order, bounds, start=max(start, total) - total, stop=stop - total)


def _segments(order: Sequence[int], bounds: npt.NDArray[np.int64], *, start: int, stop: int) -> Iterator[Segment]:
    """Yields the segments of places start to stop."""
    place = int(np.searchsorted(bounds, start, side="right")) - 1
    while start < stop:
        end = min(stop, int(bounds[place + 1]))
        if end > start:
            yield Segment(order[place], start - int(bounds[place]), end - start)
        start, place = max(start, end), place + 1
