"""Distinct tokens of a column and their counts in bounded memory: exact while they are few, a sample of them beyond.

The sample is of tokens, not of rows: those whose 64-bit hash is among the smallest `capacity`. A token in the sample
of the whole is in the sample of every part that holds it, so its count is exact, and the state follows from the
values alone, however they were cut into files and in whatever order the parts were merged. Two samples are of the
same tokens up to the smaller of their largest hashes (`complete_to`): shares in that range can be compared.

The number of distinct tokens beyond `capacity` k is estimated by (k - 1) / u, where u in (0, 1] is the k-th smallest
hash over 2^64 (Beyer, Haas, Reinwald, Sismanis, Gemulla, 2007, "On synopses for distinct-value estimation under
multiset operations", section 4.1): unbiased, with a relative standard error of 1 / sqrt(k - 2), so 0.4 % of 65,536.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.hashing import hash_column

__all__ = ["NUMBER_CAPACITY", "TEXT_CAPACITY", "TokenSketch", "merge_sketches", "sketch_numbers", "sketch_tokens"]

TEXT_CAPACITY = 1 << 16
NUMBER_CAPACITY = 1 << 12  # histograms know the frequent numbers
TEXT_BYTES = 256  # kept of a token's text, which is only shown: tokens are told apart by their hash
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@dataclasses.dataclass(frozen=True)
class TokenSketch:
    """Tokens by rising hash.

    Attributes:
        hashes: uint64, rising, of the whole token.
        texts: large_binary, the first `TEXT_BYTES` bytes of each.
        counts: int64, of each token, exact.
        total: number of values counted, tokens outside the sample included.
        is_exact: whether every token is here.
    """

    hashes: npt.NDArray[np.uint64]
    texts: pa.Array
    counts: npt.NDArray[np.int64]
    total: int
    is_exact: bool

    def distinct(self) -> int:
        """Returns the number of distinct tokens, an estimate unless `is_exact`."""
        size = len(self.hashes)
        if self.is_exact or size < 2:
            return size
        return round((size - 1) / (float(self.hashes[-1]) / 2.0**64))

    def complete_to(self) -> np.uint64:
        """Returns the hash up to which every token is here."""
        return _ALL if self.is_exact or not len(self.hashes) else self.hashes[-1]

    def up_to(self, limit: np.uint64) -> TokenSketch:
        """Returns the tokens whose hash is at most `limit`, as a sketch of them alone."""
        size = int(np.searchsorted(self.hashes, limit, side="right"))
        counts = self.counts[:size]
        return TokenSketch(self.hashes[:size], self.texts[:size], counts, int(counts.sum()), is_exact=True)

    def top(self, size: int) -> npt.NDArray[np.int64]:
        """Returns the places of the most frequent tokens here, ties by hash, at most `size`."""
        return np.argsort(-self.counts, kind="stable")[:size]


def sketch_tokens(tokens: pa.Array, counts: npt.NDArray[np.int64], *, capacity: int) -> TokenSketch:
    """Returns the sketch of distinct tokens (text, without nulls) and the count of each."""
    hashes = hash_column(tokens)
    kept = np.argsort(hashes, kind="stable")[:capacity]
    return TokenSketch(
        hashes=hashes[kept],
        texts=_texts(tokens.take(pa.array(kept))),
        counts=counts[kept],
        total=int(counts.sum()),
        is_exact=len(hashes) <= capacity,
    )


def sketch_numbers(values: pa.Array, *, capacity: int) -> TokenSketch:
    """Returns the sketch of numbers without nulls.

    By sorting their hashes: five times as fast as counting values where most are distinct, as numbers are.
    """
    hashes = hash_column(values)
    ordered = np.sort(hashes)
    first = np.flatnonzero(np.concatenate([np.ones(min(len(ordered), 1), np.bool_), ordered[1:] != ordered[:-1]]))
    ends = np.append(first, len(ordered))[: capacity + 1]
    kept = ordered[first[:capacity]]
    rows = np.flatnonzero(hashes <= kept[-1]) if len(kept) else np.zeros(0, np.int64)
    rows = rows[np.unique(hashes[rows], return_index=True)[1]]
    return TokenSketch(
        hashes=kept,
        texts=_texts(values.take(pa.array(rows))),
        counts=np.diff(ends),
        total=len(values),
        is_exact=len(first) <= capacity,
    )


def _texts(values: pa.Array) -> pa.Array:
    if not pa.types.is_binary(values.type) and not pa.types.is_large_binary(values.type):
        values = values.cast(pa.string())
    return pc.binary_slice(values.cast(pa.large_binary()), 0, TEXT_BYTES)


def merge_sketches(parts: Sequence[TokenSketch], *, capacity: int) -> TokenSketch:
    """Returns the sketch of all values together; the order of parts does not matter. At least one part."""
    all_hashes = np.concatenate([part.hashes for part in parts])
    hashes, first, inverse = np.unique(all_hashes, return_index=True, return_inverse=True)
    counts = np.zeros(len(hashes), np.int64)
    np.add.at(counts, inverse, np.concatenate([part.counts for part in parts]))
    texts = pa.concat_arrays([part.texts for part in parts]).take(pa.array(first[:capacity]))
    return TokenSketch(
        hashes=hashes[:capacity],
        texts=texts,
        counts=counts[:capacity],
        total=sum(part.total for part in parts),
        is_exact=all(part.is_exact for part in parts) and len(hashes) <= capacity,
    )
