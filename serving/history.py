"""What was done to the versions of a model: who, when, what, why; a JSON object a line, only ever appended to.

A line is written at once and flushed to disk before the call returns. One that a crash left half written is skipped
by readers and closed by the next writer.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import getpass
import json
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from preprocessing.errors import ArtefactError

__all__ = ["HISTORY", "Action", "Event", "append", "labelled_versions", "published_at", "read_events", "who_am_i"]

HISTORY = ".rankmill-history.jsonl"
Action = Literal["publish", "promote", "rollback", "retire", "expire", "pin", "unpin"]


@dataclasses.dataclass(frozen=True)
class Event:
    """One thing that was done.

    Attributes:
        action: what; "expire" is a removal by retention.
        version: to which version.
        label: that was moved, if any.
        before: the version that had the label.
        why: in the words of who did it.
        who: user@machine.
        when: ISO 8601 in UTC.
    """

    action: Action
    version: int
    label: str | None = None
    before: int | None = None
    why: str = ""
    who: str = ""
    when: str = ""


def who_am_i() -> str:
    """Returns user@machine."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def append(store: Path, event: Event) -> None:
    """Adds an event to the history of a model; who and when are filled in.

    Raises:
        ArtefactError: if it cannot be written.
    """
    now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    event = dataclasses.replace(event, who=event.who or who_am_i(), when=event.when or now)
    line = json.dumps(dataclasses.asdict(event), ensure_ascii=False).encode() + b"\n"
    path = store / HISTORY
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, line if _ends_whole(descriptor) else b"\n" + line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ArtefactError(f"{path} cannot be written: {error}; what was done is not in the history") from error


def _ends_whole(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"


def read_events(store: Path) -> list[Event]:
    """Returns the history of a model, oldest first; lines that are no event are passed over.

    Raises:
        ArtefactError: if the file is there and cannot be read.
    """
    try:
        lines = (store / HISTORY).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ArtefactError(f"{store / HISTORY} cannot be read: {error}") from error
    return [event for line in lines if (event := _parsed(line)) is not None]


def _parsed(line: bytes) -> Event | None:
    names = {field.name for field in dataclasses.fields(Event)}
    try:
        value = json.loads(line)
        event = Event(**{name: value[name] for name in value if name in names})
    except (ValueError, TypeError):
        return None
    return event if type(event.version) is int else None


def labelled_versions(events: Iterable[Event], label: str) -> list[int]:
    """Returns the versions to go back through for a label, the present one last.

    A roll-back takes back what was promoted after the version that it went to: the next one goes further back.
    """
    stack: list[int] = []
    for event in events:
        if event.label != label:
            continue
        if event.action == "rollback" and event.version in stack:
            del stack[len(stack) - stack[::-1].index(event.version) :]
        elif event.action in {"promote", "rollback"} and stack[-1:] != [event.version]:
            stack.append(event.version)
    return stack


def published_at(events: Iterable[Event]) -> dict[int, dt.datetime]:
    """Returns when each version was published."""
    found = {}
    for event in events:
        if event.action == "publish":
            try:
                found[event.version] = dt.datetime.fromisoformat(event.when)
            except ValueError:
                continue
    return found
