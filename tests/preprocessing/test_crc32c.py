import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.crc32c import crc32c_columns, mask_crc


def crc(messages: list[bytes], zeros: int = 0) -> list[int]:
    (size,) = {len(message) for message in messages}
    width = max(4, -(-(size + zeros) // 4) * 4)
    rows = np.array([list(message.rjust(width, b"\x00")) for message in messages], np.uint8)
    return crc32c_columns(np.ascontiguousarray(rows.view("<u4").T), size).tolist()


def slow_crc(message: bytes) -> int:
    """The definition: bit by bit, polynomial 0x1EDC6F41 reflected."""
    register = 0xFFFFFFFF
    for byte in message:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


# RFC 3720, appendix B.4, and the check value of the CRC catalogue.
KNOWN = [
    (b"\x00" * 32, 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (b"123456789", 0xE3069283),
]


@pytest.mark.parametrize(("message", "expected"), KNOWN)
def test_published_values(message: bytes, expected: int) -> None:
    assert crc([message]) == [expected]


def test_zeros_in_front_change_nothing() -> None:
    assert crc([b"123456789"], zeros=40) == crc([b"123456789"])


@given(
    st.integers(0, 40).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=5))
)
def test_equals_the_definition(messages: list[bytes]) -> None:
    assert crc(messages) == [slow_crc(message) for message in messages]


def test_mask_rotates_and_adds() -> None:
    value = 0x12345678
    rotated = (value >> 15 | value << 17) & 0xFFFFFFFF
    assert mask_crc(np.array([value], np.uint32)).tolist() == [(rotated + 0xA282EAD8) & 0xFFFFFFFF]
