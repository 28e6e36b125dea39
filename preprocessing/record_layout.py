"""Where the values of a `tf.Example` lie in its bytes, when every message of a file is to have the same size.

    Example   { features = 1: Features }
    Features  { map entry = 1: { key = 1, value = 2: Feature } }     repeated
    Feature   { float_list = 2 or int64_list = 3: { value = 1, packed } }

An id is a varint of as many bytes as the largest id of its table needs: a smaller id is padded with zero groups,
which protocol buffers allow in values and all parsers read. So messages differ in their values alone, none has to be
measured, and record i of a file begins at i times the size of a record.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from preprocessing.string_tensor import varint

__all__ = ["RecordLayout", "record_layout", "varint_width"]

_FIELD_1, _FIELD_2, _FIELD_3 = b"\x0a", b"\x12", b"\x1a"  # wire type 2: a length and that many bytes
_FLOAT_BYTES = 4


@dataclasses.dataclass(frozen=True)
class RecordLayout:
    """The places of values in a message.

    Attributes:
        template: the message with all bits of its values 0.
        floats: of each float key, the places of its values.
        ints: of each integer key, place and width in bytes of its values.
    """

    template: bytes
    floats: Mapping[str, tuple[int, ...]]
    ints: Mapping[str, tuple[tuple[int, int], ...]]


def varint_width(largest: int) -> int:
    """Returns the bytes of the varint of a number of at least 0."""
    return max(1, -(-largest.bit_length() // 7))


def record_layout(floats: Mapping[str, int], ints: Mapping[str, Sequence[int]]) -> RecordLayout:
    """Returns the layout of messages with these keys, in this order, floats first.

    Args:
        floats: the number of values of each float key.
        ints: the largest value of each column of each integer key.

    A key without values is left out.
    """
    entries: list[bytes] = []
    widths = {key: [varint_width(limit) for limit in limits] for key, limits in ints.items() if limits}
    counts = {key: count for key, count in floats.items() if count}
    for key, count in counts.items():
        entries.append(_entry(key, _FIELD_2, bytes(_FLOAT_BYTES * count)))
    for key, key_widths in widths.items():
        entries.append(_entry(key, _FIELD_3, b"".join(_empty_varint(width) for width in key_widths)))
    template = _led_by_size(_FIELD_1, b"".join(entries))
    end = len(template) - sum(len(entry) for entry in entries)
    places: dict[str, int] = {}
    for key, entry, size in zip((*counts, *widths), entries, _content_sizes(counts, widths), strict=True):
        end += len(entry)  # an entry ends with its values
        places[key] = end - size
    return RecordLayout(
        template=template,
        floats={key: tuple(places[key] + _FLOAT_BYTES * i for i in range(count)) for key, count in counts.items()},
        ints={key: _varint_places(places[key], key_widths) for key, key_widths in widths.items()},
    )


def _content_sizes(counts: Mapping[str, int], widths: Mapping[str, Sequence[int]]) -> list[int]:
    return [_FLOAT_BYTES * count for count in counts.values()] + [sum(one) for one in widths.values()]


def _varint_places(start: int, widths: Sequence[int]) -> tuple[tuple[int, int], ...]:
    places = []
    for width in widths:
        places.append((start, width))
        start += width
    return tuple(places)


def _empty_varint(width: int) -> bytes:
    """Returns a zero of `width` bytes: all but the last say that another one follows."""
    return b"\x80" * (width - 1) + b"\x00"


def _led_by_size(tag: bytes, content: bytes) -> bytes:
    return tag + varint(len(content)) + content


def _entry(key: str, list_tag: bytes, content: bytes) -> bytes:
    """Returns a map entry of packed values."""
    feature = _led_by_size(list_tag, _led_by_size(_FIELD_1, content))
    return _led_by_size(_FIELD_1, _led_by_size(_FIELD_1, key.encode()) + _led_by_size(_FIELD_2, feature))
