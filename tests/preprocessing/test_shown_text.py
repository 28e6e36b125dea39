import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.shown_text import MAX_CHARACTERS, shown_text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"", ""),
        (b"plain text", "plain text"),
        (b"a\x00b\nc", "a\\x00b\\nc"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("é 漢 👩\u200d🔬".encode(), "é 漢 👩\u200d🔬"),
        ("\u202egnp.exe".encode(), "\\u202egnp.exe"),
        (b"<script>", "<script>"),  # escaped by the page, not here
        (b"x" * 1_000_000, "x" * MAX_CHARACTERS + "…"),
        ("é".encode() * MAX_CHARACTERS, "é" * MAX_CHARACTERS),
    ],
)
def test_bytes_as_text(value: bytes, shown: str) -> None:
    assert shown_text(value) == shown


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_become_one_short_printable_line(value: bytes) -> None:
    shown = shown_text(value).replace("\u200d", "")
    assert shown.isprintable()
    assert len(shown) <= 10 * MAX_CHARACTERS + 1
    shown.encode()
