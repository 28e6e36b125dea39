"""The hash of one key in plain Python: `preprocessing.columnar.hash_rows` of a row, without the price of its arrays.

For a handful of keys numpy's fixed cost a call is many times the work; a state is sorted by this very hash, so the
look-up of one key is its hash and a bisection.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import TypeAlias

__all__ = ["Key", "KeyPart", "hash_key"]

KeyPart: TypeAlias = bytes | int | float
Key: TypeAlias = tuple[KeyPart, ...]

_MASK = 2**64 - 1
_GOLDEN = 0x9E37_79B9_7F4A_7C15
_LONG = 128  # bytes from which BLAKE2 takes over


def _mix(value: int) -> int:
    """Returns the finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    return value ^ (value >> 31)


def hash_key(key: Sequence[KeyPart]) -> int:
    """Returns the hash of a key of text, int64 and finite float64 parts, from 0 to 2^64 - 1."""
    result = len(key)
    for part in key:
        result = (result * _GOLDEN + _hash_part(part)) & _MASK
    return _mix(result)


def _hash_part(part: KeyPart) -> int:
    if isinstance(part, bytes):
        return _hash_bytes(part)
    if isinstance(part, float):
        return _mix(int.from_bytes(struct.pack("<d", part + 0.0), "little"))  # -0.0 + 0.0 is 0.0
    return _mix(part & _MASK)


def _hash_bytes(text: bytes) -> int:
    if len(text) > _LONG:
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    result = _mix(len(text))
    for start in range(0, len(text), 8):
        word = text[start : start + 8]
        shifted = int.from_bytes(word, "little") << 8 * (8 - len(word))
        result = _mix((result * _GOLDEN) & _MASK ^ shifted)
    return result
