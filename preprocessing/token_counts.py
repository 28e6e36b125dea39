"""How often each token occurs: counts that merge by addition."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.dictionaries import Column, known_indices
from preprocessing.schema import MISSING_INT64, MISSING_STRING

__all__ = ["NO_TOKENS", "TokenCounts", "count_tokens", "merge_counts", "token_text"]


@dataclasses.dataclass(frozen=True)
class TokenCounts:
    """Distinct tokens (large_binary, no nulls, in no promised order) and the count of each."""

    tokens: pa.Array
    counts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.counts)

    def total(self) -> int:
        """Returns the number of values counted."""
        return int(self.counts.sum())


NO_TOKENS = TokenCounts(tokens=pa.array([], pa.large_binary()), counts=np.zeros(0, np.int64))


def token_text(values: pa.Array) -> pa.Array:
    """Returns the token of each value as large_binary: bytes as they are, integers in decimal."""
    if pa.types.is_integer(values.type):
        values = values.cast(pa.string())
    return values.cast(pa.large_binary())


def count_tokens(values: Column) -> TokenCounts:
    """Returns the counts of a binary or int64 array; nulls and missing markers are no tokens."""
    if isinstance(values, pa.ChunkedArray) and pa.types.is_dictionary(values.type):
        return merge_counts([count_tokens(chunk) for chunk in values.chunks])
    if pa.types.is_dictionary(values.type):
        distinct = values.dictionary
        counts = np.bincount(known_indices(values), minlength=len(distinct) + 1)[:-1]
    else:
        counted = values.value_counts()
        distinct, counts = counted.field("values"), counted.field("counts").to_numpy()
    marker = MISSING_INT64 if pa.types.is_integer(distinct.type) else MISSING_STRING
    known = pc.fill_null(pc.not_equal(distinct, pa.scalar(marker, distinct.type)), False)
    known = pc.and_(known, pa.array(counts > 0))
    return TokenCounts(
        tokens=token_text(distinct.filter(known)),
        counts=counts[known.to_numpy(zero_copy_only=False)].astype(np.int64),
    )


def merge_counts(parts: Sequence[TokenCounts]) -> TokenCounts:
    """Returns the sum of counts; the order of tokens is that of their first appearance."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return NO_TOKENS
    if len(parts) == 1:
        return parts[0]
    encoded = pa.concat_arrays([part.tokens for part in parts]).dictionary_encode()
    counts = np.zeros(len(encoded.dictionary), np.int64)
    np.add.at(counts, encoded.indices.to_numpy(), np.concatenate([part.counts for part in parts]))
    return TokenCounts(tokens=encoded.dictionary, counts=counts)
