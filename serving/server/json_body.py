"""Request bodies: from bytes to a JSON object, as TF Serving's reader takes them."""

from __future__ import annotations

import json
import re
from typing import Any

from serving.server.status import Code, StatusError

__all__ = ["optional_string", "parse_object"]

_SPACE = re.compile(r"[ \t\r\n]*")


def _first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


_DECODER = json.JSONDecoder(object_pairs_hook=_first_wins)


def parse_object(body: bytes) -> dict[str, Any]:
    """Returns the object that a body holds: the first of equal keys counts, text after it is ignored.

    Bytes that are no UTF-8 come as surrogates, so that they can be written back as they were.

    Raises:
        StatusError: INVALID_ARGUMENT, if it is empty, not JSON, or not an object.
    """
    text = body.decode("utf-8", "surrogateescape")
    match = _SPACE.match(text)
    start = match.end() if match else 0
    if start == len(text):
        raise _bad("JSON Parse error: The document is empty")
    try:
        value, _ = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise _bad(f"JSON Parse error: {error.msg} at offset: {error.pos}") from error
    except RecursionError as error:
        raise _bad("JSON Parse error: lists or objects are nested too deeply") from error
    except ValueError as error:
        raise _bad(f"JSON Parse error: {error}") from error
    if not isinstance(value, dict):
        raise _bad("Malformed request: the body must be a JSON object")
    return value


def optional_string(body: dict[str, Any], key: str) -> str:
    """Returns the string at `key`, "" if there is none; INVALID_ARGUMENT if it is something else."""
    value = body.get(key, "")
    if not isinstance(value, str):
        raise _bad(f"'{key}' key must be a string value.")
    return value


def _bad(message: str) -> StatusError:
    return StatusError(Code.INVALID_ARGUMENT, message)
