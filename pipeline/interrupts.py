"""Interrupts (Ctrl-C) told apart from the errors that native code makes of them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["noticed_interrupts"]


@contextlib.contextmanager
def noticed_interrupts() -> Iterator[Callable[[], bool]]:
    """While the block runs, notes interrupts; the value tells whether there was one.

    An interrupt raises KeyboardInterrupt as before, but where it strikes in a callback from native code, that code
    may raise something else in its place. A process that ignores interrupts still does.
    """
    seen: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield lambda: False
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, before)
