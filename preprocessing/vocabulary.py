"""The id layout of every kind of table, written once: writer, model and server call it.

    vocabulary   0 missing or padding | 1 .. K out-of-vocabulary buckets | K+1 .. tokens by falling count, ties by bytes
    hashed       0 missing | 1 .. buckets
    integer      0 missing | 1 out of range | 2 + value
    buckets      0 missing | 1 + number of boundaries at or below the value
    hour, day    0 missing | 1 + hour (0 to 23), 1 + day of week (Monday is 0)

A change of any of these must raise `schema.ID_LAYOUT_VERSION`. Vocabularies hold any bytes.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from preprocessing.errors import ArtefactError
from preprocessing.schema import ID_LAYOUT_VERSION
from preprocessing.token_counts import TokenCounts

__all__ = [
    "BUCKET_OFFSET",
    "HASH_OFFSET",
    "INTEGER_OFFSET",
    "INTEGER_OOV_ID",
    "MISSING_ID",
    "OOV_OFFSET",
    "PERIOD_OFFSET",
    "Vocabulary",
    "bucket_rows",
    "build",
    "first_token_id",
    "grow",
    "hashed_rows",
    "integer_rows",
    "load",
    "period_rows",
    "vocabulary_rows",
]

MISSING_ID = 0
OOV_OFFSET = 1  # id of out-of-vocabulary bucket 0
HASH_OFFSET = 1  # id of hash bucket 0
INTEGER_OOV_ID = 1
INTEGER_OFFSET = 2  # id of the integer 0
BUCKET_OFFSET = 1  # id of values below the first boundary
PERIOD_OFFSET = 1  # id of hour 0, of Monday

_FORMAT_KEY = b"rankmill.id_layout"
_OOV_KEY = b"rankmill.oov_buckets"


def first_token_id(num_oov: int) -> int:
    """Returns the id of a vocabulary's first token."""
    return OOV_OFFSET + num_oov


def vocabulary_rows(num_tokens: int, *, num_oov: int) -> int:
    """Returns the number of rows of a table with a vocabulary."""
    return first_token_id(num_oov) + num_tokens


def hashed_rows(buckets: int) -> int:
    """Returns the number of rows of a table of hashed or crossed values."""
    return HASH_OFFSET + buckets


def integer_rows(size: int) -> int:
    """Returns the number of rows of a table of the integers 0 to size - 1."""
    return INTEGER_OFFSET + size


def bucket_rows(num_boundaries: int) -> int:
    """Returns the number of rows of a table of a bucketed number: one bucket more than boundaries."""
    return BUCKET_OFFSET + num_boundaries + 1


def period_rows(num_periods: int) -> int:
    """Returns the number of rows of a table of hours (24) or days of the week (7)."""
    return PERIOD_OFFSET + num_periods


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Tokens in the order of their ids.

    Attributes:
        tokens: large_binary, no nulls, all distinct.
        counts: int64, how often each was seen in the training split.
        num_oov: number of out-of-vocabulary buckets, at least 1.
    """

    tokens: pa.Array
    counts: npt.NDArray[np.int64]
    num_oov: int

    @property
    def num_rows(self) -> int:
        """Rows of the table: missing, out-of-vocabulary, tokens."""
        return vocabulary_rows(len(self.tokens), num_oov=self.num_oov)

    @property
    def first_token_id(self) -> int:
        """Id of the first token."""
        return first_token_id(self.num_oov)

    def save(self, path: Path) -> None:
        """Writes columns `token` and `count`, in the order of ids, to a Parquet file."""
        metadata = {_FORMAT_KEY: str(ID_LAYOUT_VERSION).encode(), _OOV_KEY: str(self.num_oov).encode()}
        fields = [pa.field("token", pa.large_binary()), pa.field("count", pa.int64())]
        schema = pa.schema(fields, metadata=metadata)
        pq.write_table(pa.table([self.tokens, pa.array(self.counts)], schema=schema), path, compression="zstd")


def load(path: Path) -> Vocabulary:
    """Returns the vocabulary that `Vocabulary.save` wrote.

    Raises:
        ArtefactError: if the file is absent, is no vocabulary, or follows another id layout.
    """
    try:
        table = pq.read_table(path, columns=["token", "count"])
        metadata = table.schema.metadata or {}
        version, num_oov = int(metadata[_FORMAT_KEY]), int(metadata[_OOV_KEY])
    except (OSError, KeyError, ValueError) as error:
        raise ArtefactError(f"{path} is not a readable vocabulary: {error!r}; run preprocess again") from error
    if version != ID_LAYOUT_VERSION:
        raise ArtefactError(
            f"{path}: ids follow layout {version}, this version reads layout {ID_LAYOUT_VERSION}; run preprocess again"
        )
    tokens = table["token"].combine_chunks().cast(pa.large_binary())
    return Vocabulary(tokens=tokens, counts=table["count"].to_numpy().astype(np.int64), num_oov=num_oov)


def build(counts: TokenCounts, *, min_count: int, max_size: int | None, num_oov: int) -> Vocabulary:
    """Returns a fresh vocabulary: tokens seen at least `min_count` times, by falling count, ties by bytes.

    Args:
        counts: merged counts of all columns that share the table.
        min_count: least count of a token.
        max_size: greatest number of tokens; None for no limit.
        num_oov: number of out-of-vocabulary buckets.
    """
    frequent = pa.array(counts.counts >= min_count)
    table = pa.table({"token": counts.tokens.filter(frequent), "count": pa.array(counts.counts).filter(frequent)})
    order = pc.sort_indices(table, sort_keys=[("count", "descending"), ("token", "ascending")])
    if max_size is not None:
        order = order[:max_size]
    table = table.take(order)
    tokens = table["token"].combine_chunks()
    return Vocabulary(tokens=tokens, counts=table["count"].to_numpy().astype(np.int64), num_oov=num_oov)


def grow(previous: Vocabulary, counts: TokenCounts, *, min_count: int, max_size: int | None) -> Vocabulary:
    """Returns `previous` with new tokens after its own, so that every token keeps its id.

    New are tokens seen at least `min_count` times that `previous` has not, in the order of `build`. Counts are those
    of `counts`; a token that is no longer seen stays, with count 0.

    Args:
        previous: the vocabulary of the run before.
        counts: merged counts of all columns that share the table.
        min_count: least count of a new token.
        max_size: greatest number of tokens, old ones included; None for no limit.
    """
    place = pc.index_in(previous.tokens, value_set=counts.tokens)
    seen = np.append(counts.counts, 0)[pc.fill_null(place, len(counts.counts)).to_numpy()]
    is_new = pc.invert(pc.is_in(counts.tokens, value_set=previous.tokens))
    others = TokenCounts(counts.tokens.filter(is_new), counts.counts[is_new.to_numpy(zero_copy_only=False)])
    room = None if max_size is None else max(0, max_size - len(previous.tokens))
    added = build(others, min_count=min_count, max_size=room, num_oov=previous.num_oov)
    return Vocabulary(
        tokens=pa.concat_arrays([previous.tokens, added.tokens]),
        counts=np.concatenate([seen, added.counts]),
        num_oov=previous.num_oov,
    )
