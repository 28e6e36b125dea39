"""A record as bytes, for stores that hold one value a key, and a key as bytes that no other key has.

record    the counts (int64) and rates (float64); of each list uint32 its length; of each list its elements:
          int64, float64, or for texts uint32 their lengths and then the texts. Little-endian throughout.
key       its parts: int64 or float64, 8 bytes; text, uint32 its length and the text
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from preprocessing.derived_spec import CountColumn
from preprocessing.errors import CorruptError
from serving.features_embedded import Record
from serving.features_hash import Key
from serving.features_layout import KeySet, KeyType

__all__ = ["RecordCodec", "key_bytes"]

_LETTER: dict[KeyType, str] = {"int64": "q", "float64": "d", "string": "I"}


class RecordCodec:
    """Encodes and decodes the records of one key set."""

    def __init__(self, key_set: KeySet) -> None:
        letters = "".join("q" if isinstance(one, CountColumn) else "d" for one in key_set.scalars)
        self._kinds = list(key_set.lists().values())
        self._head = struct.Struct(f"<{letters}{'I' * len(self._kinds)}")
        self._num_scalars = len(letters)

    def encode(self, record: Record) -> bytes:
        """Returns the bytes of a record."""
        lists = record[self._num_scalars :]
        parts = [self._head.pack(*record[: self._num_scalars], *map(len, lists))]
        for kind, values in zip(self._kinds, lists, strict=True):
            if kind == "string":
                parts.append(struct.pack(f"<{len(values)}I", *map(len, values)))
                parts += values
            else:
                parts.append(struct.pack(f"<{len(values)}{_LETTER[kind]}", *values))
        return b"".join(parts)

    def decode(self, content: bytes) -> Record:
        """Returns the record of some bytes.

        Raises:
            CorruptError: if they are none.
        """
        try:
            head = self._head.unpack_from(content)
            at = self._head.size
            lists = []
            for kind, length in zip(self._kinds, head[self._num_scalars :], strict=True):
                numbers = struct.Struct(f"<{length}{_LETTER[kind]}")
                values = list(numbers.unpack_from(content, at))
                at += numbers.size
                if kind == "string":
                    values, at = _texts(content, values, at)
                lists.append(values)
        except struct.error as error:
            raise CorruptError(
                f"a feature record of {len(content)} bytes does not decode: {error}; push anew"
            ) from error
        if at != len(content):
            raise CorruptError(f"a feature record has {len(content)} bytes where {at} were expected; push anew")
        return (*head[: self._num_scalars], *lists)


def _texts(content: bytes, lengths: Sequence[int], at: int) -> tuple[list[bytes], int]:
    texts = []
    for length in lengths:
        texts.append(content[at : at + length])
        at += length
    return texts, at


def key_bytes(key: Key) -> bytes:
    """Returns bytes that are equal for equal keys of one key set, and for no others."""
    parts = []
    for part in key:
        if isinstance(part, bytes):
            parts += [struct.pack("<I", len(part)), part]
        else:
            parts.append(struct.pack("<d" if isinstance(part, float) else "<q", part))
    return b"".join(parts)
