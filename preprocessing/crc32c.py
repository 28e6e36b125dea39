"""CRC-32C (Castagnoli) of many byte strings of one length at once, in numpy, as TFRecord files need it.

The register is linear in message and start value: a register of 0 passes zero bytes unchanged, so a message may have
any number of them in front, and what the start value adds depends on the length alone. `N` messages, `W` words.
"""

from __future__ import annotations

import functools
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["crc32c_columns", "mask_crc"]

Words: TypeAlias = npt.NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78  # reflected
_START = 0xFFFFFFFF
_MASK_DELTA = np.uint32(0xA282EAD8)


def _bytes_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (_POLYNOMIAL if value & 1 else 0) for value in table]
    return table


@functools.cache
def _word_tables() -> tuple[Words, Words]:
    """Returns what the low and the high half of a register add to it when four bytes pass."""
    step = np.array(_bytes_table(), np.uint32)
    low = np.arange(1 << 16, dtype=np.uint32)
    high = low << np.uint32(16)
    for _ in range(4):
        low, high = (value >> np.uint32(8) ^ step[value & np.uint32(0xFF)] for value in (low, high))
    return low, high


@functools.lru_cache(maxsize=64)
def _start_term(size: int) -> int:
    """Returns what the start value leaves in the register behind `size` zero bytes."""
    table, register = _bytes_table(), _START
    for _ in range(size):
        register = register >> 8 ^ table[register & 0xFF]
    return register


def crc32c_columns(words: Words, size: int) -> Words:
    """Returns the CRC-32C [N] of the last `size` bytes of each column; the bytes before them must be 0.

    Args:
        words: uint32 [W, N], the bytes of message i in order, four to a word, least significant first.
        size: at most 4 W.
    """
    low, high = _word_tables()
    register, passed, other = np.zeros((3, words.shape[1]), np.uint32)
    halves = passed.view(np.uint16)
    for word in words:
        np.bitwise_xor(register, word, out=passed)
        np.take(low, halves[0::2], out=register, mode="clip")  # never clips: spares the check of bounds
        np.take(high, halves[1::2], out=other, mode="clip")
        np.bitwise_xor(register, other, out=register)
    return register ^ np.uint32(_start_term(size) ^ _START)


def mask_crc(crc: Words) -> Words:
    """Returns the form in which TFRecord files store a CRC: rotated by 15 bits, plus a constant."""
    return (crc >> np.uint32(15) | crc << np.uint32(17)) + _MASK_DELTA
