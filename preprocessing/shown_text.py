"""Any bytes as one line of text that is safe to show: nothing invisible, nothing that turns the line around."""

from __future__ import annotations

__all__ = ["MAX_CHARACTERS", "shown_text"]

MAX_CHARACTERS = 48
_JOINER = "\u200d"  # invisible, but emoji of several parts are joined by it


def shown_text(value: bytes) -> str:
    """Returns UTF-8 as it is, and other bytes, control and format characters as escapes, cut to `MAX_CHARACTERS`."""
    text = value[: 4 * (MAX_CHARACTERS + 1)].decode(errors="backslashreplace")
    cut = len(text) > MAX_CHARACTERS
    shown = "".join(map(_shown_character, text[:MAX_CHARACTERS]))
    return f"{shown}…" if cut else shown


def _shown_character(character: str) -> str:
    if character.isprintable() or character == _JOINER:
        return character
    return character.encode("unicode_escape").decode()
