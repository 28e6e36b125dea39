"""All vocabularies as one TensorFlow lookup table that loads itself from assets holding any bytes.

One table and not one for each vocabulary: each costs three functions, which take a tenth of a second to save and load.
A token is led by the number of its vocabulary, so tokens of two vocabularies never meet.

A text file cannot hold newlines, and constants count against the 2 GB limit of a graph: an asset is a serialised
string tensor, parsed when the table is initialised. A message is limited to 2 GB too, so there may be several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from preprocessing.string_tensor import serialise_strings
from preprocessing.vocabulary import OOV_OFFSET, Vocabulary

__all__ = ["IdTable", "write_assets"]

_UNKNOWN = -1
_MAX_PART_BYTES = 1 << 30
_TAG_BYTES = 6  # at most, of a string in a serialised tensor: tag and length


def _prefix(place: int) -> bytes:
    return b"%d:" % place


def write_assets(
    vocabularies: Mapping[str, Vocabulary], folder: Path, *, part_bytes: int = _MAX_PART_BYTES
) -> list[Path]:
    """Writes the tokens of all vocabularies, in order, as serialised tensors of about `part_bytes` at most."""
    paths: list[Path] = []
    for part in _parts(vocabularies, part_bytes):
        paths.append(folder / f"vocabulary-{len(paths):05d}.tensor")
        paths[-1].write_bytes(serialise_strings(part))
    return paths


def _parts(vocabularies: Mapping[str, Vocabulary], part_bytes: int) -> Iterator[pa.Array]:
    """Yields all tokens behind their prefixes; at least one array, which may be empty."""
    nothing = pa.scalar(b"", pa.large_binary())
    prefixes = [pa.scalar(_prefix(place), pa.large_binary()) for place in range(len(vocabularies))]
    tokens = pa.concat_arrays(
        [
            pa.array([], pa.large_binary()),
            *(
                pc.binary_join_element_wise(prefix, words.tokens.cast(pa.large_binary()), nothing)
                for prefix, words in zip(prefixes, vocabularies.values(), strict=True)
            ),
        ]
    )
    ends = np.cumsum(pc.binary_length(tokens).to_numpy() + _TAG_BYTES)
    start = 0
    while True:
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + part_bytes, side="right")))
        yield tokens[start:stop]
        start = stop
        if start >= len(tokens):
            return


class _Initializer(tf.Module):
    """Fills the table with the tokens of the assets; the ids of each vocabulary count up from its first."""

    key_dtype = tf.string
    value_dtype = tf.int64
    _shared_name = ""  # StaticHashTable then picks a unique one

    def __init__(self, paths: list[Path], vocabularies: Mapping[str, Vocabulary]) -> None:
        super().__init__()
        self.parts = [tf.saved_model.Asset(str(path)) for path in paths]
        sizes = np.array([len(words.tokens) for words in vocabularies.values()], np.int64)
        first_ids = np.array([words.first_token_id for words in vocabularies.values()], np.int64)
        self._sizes = sizes
        self._shifts = first_ids - (np.cumsum(sizes) - sizes)  # from the place among all tokens to the id

    def initialize(self, table: tf.lookup.StaticHashTable) -> tf.Operation:
        """Returns the op that fills `table`."""
        tokens = [
            tf.ensure_shape(tf.io.parse_tensor(tf.io.read_file(part.asset_path), tf.string), [None])
            for part in self.parts
        ]
        ids = tf.range(int(self._sizes.sum()), dtype=tf.int64) + tf.repeat(self._shifts, self._sizes)
        # An import must not be empty; no token has an empty key.
        keys, values = tf.concat([[b""], *tokens], 0), tf.concat([[tf.constant(_UNKNOWN, tf.int64)], ids], 0)
        return tf.raw_ops.LookupTableImportV2(table_handle=table.resource_handle, keys=keys, values=values)


class IdTable(tf.Module):
    """From tokens to ids, for all vocabularies of a transform."""

    def __init__(self, vocabularies: Mapping[str, Vocabulary], *, folder: Path) -> None:
        """Writes the assets to `folder`, which must stay until the module is saved or dropped."""
        super().__init__()
        self._num_oov = {name: words.num_oov for name, words in vocabularies.items()}
        self._prefixes = {name: _prefix(place) for place, name in enumerate(vocabularies)}
        paths = write_assets(vocabularies, folder)
        self._table = tf.lookup.StaticHashTable(_Initializer(paths, vocabularies), _UNKNOWN)

    def ids(self, tokens: tf.Tensor, *, table: str) -> tf.Tensor:
        """Returns int64 ids of string tokens, any shape; an unknown one falls into an OOV bucket by its hash."""
        ids = self._table.lookup(tf.strings.join([self._prefixes[table], tokens]))
        num_oov = self._num_oov[table]
        if num_oov == 1:
            unknown = tf.constant(OOV_OFFSET, tf.int64)
        else:
            unknown = OOV_OFFSET + tf.strings.to_hash_bucket_fast(tokens, num_oov)
        return tf.where(ids == _UNKNOWN, unknown, ids)
