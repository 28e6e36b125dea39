"""A vocabulary as a TensorFlow lookup table that loads itself from an asset holding any bytes.

A text file cannot hold newlines, and constants count against the 2 GB limit of a graph: the asset is a serialised
string tensor, parsed when the table is initialised.
"""

from __future__ import annotations

import urllib.parse
from pathlib import Path

import tensorflow as tf

from preprocessing.errors import DataError
from preprocessing.schema import MISSING_STRING
from preprocessing.string_tensor import serialise_strings
from preprocessing.vocabulary import OOV_OFFSET, Vocabulary

__all__ = ["UNKNOWN", "id_table", "ids_of_tokens", "write_asset"]

UNKNOWN = -1
_MAX_ASSET_BYTES = 2**31 - 1


def write_asset(vocabulary: Vocabulary, folder: Path, *, table: str) -> Path:
    """Writes the tokens as a serialised tensor and returns the file, named after the table.

    Raises:
        DataError: if the tokens do not fit into one tensor message.
    """
    content = serialise_strings(vocabulary.tokens)
    if len(content) > _MAX_ASSET_BYTES:
        raise DataError(
            f"the vocabulary of table {table!r} takes {len(content):,} bytes, a tensor message holds "
            f"{_MAX_ASSET_BYTES:,}; raise its min_count, set max_size, or use kind hashed"
        )
    path = folder / f"{urllib.parse.quote(table, safe='')}.tensor"
    path.write_bytes(content)
    return path


class _TensorFileInitializer(tf.Module):
    """Fills a table with the tokens of a serialised string tensor, ids counting up from the first."""

    key_dtype = tf.string
    value_dtype = tf.int64
    _shared_name = ""  # StaticHashTable then picks a unique one

    def __init__(self, path: Path, *, first_id: int) -> None:
        super().__init__()
        self.tokens_file = tf.saved_model.Asset(str(path))
        self.first_id = first_id

    def initialize(self, table: tf.lookup.StaticHashTable) -> tf.Operation:
        """Returns the op that fills `table`."""
        tokens = tf.io.parse_tensor(tf.io.read_file(self.tokens_file.asset_path), tf.string)
        tokens = tf.ensure_shape(tokens, [None])
        ids = tf.range(tf.size(tokens, out_type=tf.int64), dtype=tf.int64) + self.first_id
        # An import must not be empty; the missing marker is no token of any vocabulary, and means what unknown means.
        keys, values = tf.concat([[MISSING_STRING], tokens], 0), tf.concat([[UNKNOWN], ids], 0)
        return tf.raw_ops.LookupTableImportV2(table_handle=table.resource_handle, keys=keys, values=values)


def id_table(path: Path, *, first_id: int) -> tf.lookup.StaticHashTable:
    """Returns the table of an asset: token to id, `UNKNOWN` for other strings."""
    return tf.lookup.StaticHashTable(_TensorFileInitializer(path, first_id=first_id), UNKNOWN)


def ids_of_tokens(tokens: tf.Tensor, table: tf.lookup.StaticHashTable, *, num_oov: int) -> tf.Tensor:
    """Returns int64 ids of string tokens, any shape; an unknown token falls into one of the OOV buckets by its hash."""
    ids = table.lookup(tokens)
    if num_oov == 1:
        unknown = tf.constant(OOV_OFFSET, tf.int64)
    else:
        unknown = OOV_OFFSET + tf.strings.to_hash_bucket_fast(tokens, num_oov)
    return tf.where(ids == UNKNOWN, unknown, ids)
