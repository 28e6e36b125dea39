"""Events of the simulated shop as lines of CSV, clean or with a share of dirt.

Each impression is spoilt with probability `dirt`, in one of these ways; the truth of it stays unless marked (lost):

    malformed    the line is cut short, or has cells too many (lost)
    duplicate    the same line comes again later that day
    missing      no price, or no device
    absurd       a price that is none: "abc", negative, beyond reason, NaN
    future       a timestamp ten years ahead (lost)
    unicode      a device named with emoji, combining characters, quotes and commas
    late         the line arrives with the next day's, `received_ms` says when

Clicks are never spoilt so that a label changes: as many lines of garbage, duplicates and clicks on impressions that
never were are added, and some true ones arrive late.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.simulate_day import DAY_MS, DayEvents
from preprocessing.simulate_shop import HOUR_MS, item_ids, user_ids
from preprocessing.simulate_truth import DEVICES

__all__ = [
    "CLICK_COLUMNS",
    "IMPRESSION_COLUMNS",
    "Lines",
    "click_lines",
    "impression_ids",
    "impression_lines",
    "write_lines",
]

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

IMPRESSION_COLUMNS = (
    "impression_id", "request_id", "user_id", "item_id", "position", "device", "timestamp_ms", "price_shown",
    "received_ms",
)  # fmt: skip
CLICK_COLUMNS = ("impression_id", "user_id", "item_id", "clicked_ms", "received_ms")
IMPRESSION_DIRT = ("malformed", "duplicate", "missing", "absurd", "future", "unicode", "late")
CLICK_DIRT = ("malformed", "duplicate", "unknown", "late")
ABSURD_PRICES = ("abc", "-19.99", "1e300", "NaN", "-inf", "12.5 €")
STRANGE_DEVICES = ("📱", "téléphone", "teléfono\u0301", '"tablet, 10"" 🎉"', "手机", "null")
TEN_YEARS_MS = 3652 * DAY_MS


@dataclasses.dataclass(frozen=True)
class Lines:
    """Lines of a log with the time at which each reaches it."""

    text: pa.Array  # large_string, without line ends
    due_ms: Integers

    def plus(self, other: Lines) -> Lines:
        """Returns these lines and the others after them."""
        return Lines(pa.concat_arrays([self.text, other.text]), np.concatenate([self.due_ms, other.due_ms]))

    def take(self, rows: Integers) -> Lines:
        """Returns the lines at `rows`, in that order."""
        return Lines(self.text.take(pa.array(rows)), self.due_ms[rows])

    def split(self, end_ms: int) -> tuple[Lines, Lines]:
        """Returns the lines due before `end_ms` in order of time, and those that wait."""
        order = np.argsort(self.due_ms, kind="stable")
        cut = int(np.searchsorted(self.due_ms[order], end_ms))
        return self.take(order[:cut]), self.take(order[cut:])


NO_LINES = Lines(pa.array([], pa.large_string()), np.zeros(0, np.int64))


def impression_ids(events: DayEvents) -> pa.Array:
    """Returns the ids of a day's impressions, in order of time."""
    return _numbered(f"{events.date:%Y%m%d}-", np.arange(events.request.size))


def impression_lines(
    events: DayEvents, *, dirt: float, rng: np.random.Generator
) -> tuple[Lines, Mask, collections.Counter[str]]:
    """Returns the lines of a day's impressions, which impressions are lost in them, and the dirt by kind."""
    size = events.request.size
    spoilt = _spoilt(rng, size, dirt, IMPRESSION_DIRT)
    received_ms = np.where(spoilt("late"), _next_day(rng, events, size), events.received_ms)
    no_price = spoilt("missing") & (rng.random(size) < 0.5)
    device = _overlay(pa.array(DEVICES).take(pa.array(events.shown.device)), spoilt("missing") & ~no_price, [""], rng)
    price = _overlay(_decimal(events.shown.price_cents), no_price, [""], rng)
    cells = {
        "impression_id": impression_ids(events),
        "request_id": _numbered(f"r{events.date:%Y%m%d}-", np.arange(int(events.request[-1]) + 1)).take(
            pa.array(events.request)
        ),
        "user_id": user_ids(events.shown.user),
        "item_id": item_ids(events.shown.item),
        "position": pa.array(events.shown.position),
        "device": _overlay(device, spoilt("unicode"), STRANGE_DEVICES, rng),
        "timestamp_ms": pa.array(events.timestamp_ms + np.where(spoilt("future"), TEN_YEARS_MS, 0)),
        "price_shown": _overlay(price, spoilt("absurd"), ABSURD_PRICES, rng),
        "received_ms": pa.array(received_ms),
    }
    text = _malformed(_csv(cells), cells, spoilt("malformed"), rng)
    lines = Lines(text, np.where(spoilt("late"), received_ms, events.timestamp_ms))
    counts = collections.Counter({kind: int(spoilt(kind).sum()) for kind in IMPRESSION_DIRT})
    return _duplicated(lines, spoilt("duplicate"), events, rng), spoilt("malformed") | spoilt("future"), counts


def click_lines(events: DayEvents, *, dirt: float, rng: np.random.Generator) -> tuple[Lines, collections.Counter[str]]:
    """Returns the lines of the clicks on a day's impressions, and the dirt by kind."""
    clicks, size = events.clicks, events.clicks.row.size
    spoilt = _spoilt(rng, size, dirt, CLICK_DIRT)
    received_ms = np.where(spoilt("late"), clicks.received_ms + _hours_ms(rng, size), clicks.received_ms)
    cells = {
        "impression_id": impression_ids(events).take(pa.array(clicks.row)),
        "user_id": user_ids(events.shown.user[clicks.row]),
        "item_id": item_ids(events.shown.item[clicks.row]),
        "clicked_ms": pa.array(clicks.clicked_ms),
        "received_ms": pa.array(received_ms),
    }
    text = _csv(cells)
    lines = Lines(text, np.where(spoilt("late"), received_ms, clicks.clicked_ms))
    garbage, unknown = np.flatnonzero(spoilt("malformed")), np.flatnonzero(spoilt("unknown"))
    broken = _malformed(text, cells, spoilt("malformed"), rng)
    orphans = _csv(cells | {"impression_id": _numbered("never-", np.arange(size))})
    lines = _duplicated(lines, spoilt("duplicate"), events, rng)
    lines = lines.plus(Lines(broken, clicks.clicked_ms).take(garbage)).plus(
        Lines(orphans, clicks.clicked_ms).take(unknown)
    )
    return lines, collections.Counter({kind: int(spoilt(kind).sum()) for kind in CLICK_DIRT})


def write_lines(path: Path, columns: tuple[str, ...], lines: Lines) -> None:
    """Writes a CSV file: the header, then the lines, ended by a newline each."""
    ended = pc.binary_join_element_wise(
        lines.text, pa.scalar("", pa.large_string()), pa.scalar("\n", pa.large_string())
    )
    with path.open("wb") as file:
        file.write((",".join(columns) + "\n").encode())
        if len(ended):
            # A string array's bytes stand one after the other: they are the file.
            file.write(ended.buffers()[2])


def _spoilt(rng: np.random.Generator, size: int, dirt: float, kinds: tuple[str, ...]) -> Callable[[str], Mask]:
    """Returns which rows are spoilt by a kind of dirt; a row is spoilt once at most, each kind is as likely."""
    kind_of_row = np.where(rng.random(size) < dirt, rng.integers(0, len(kinds), size), -1)
    return lambda kind: kind_of_row == kinds.index(kind)


def _csv(cells: Mapping[str, pa.Array]) -> pa.Array:
    columns = [cell.cast(pa.large_string()) for cell in cells.values()]
    return pc.binary_join_element_wise(*columns, pa.scalar(",", pa.large_string()))


def _overlay(column: pa.Array, mask: Mask, texts: tuple[str, ...] | list[str], rng: np.random.Generator) -> pa.Array:
    """Returns `column` with one of `texts` wherever `mask` is set."""
    rows = np.flatnonzero(mask)
    chosen = pa.array(list(texts)).take(pa.array(rng.integers(0, len(texts), rows.size)))
    return pc.replace_with_mask(column, pa.array(mask), chosen)


def _malformed(text: pa.Array, cells: Mapping[str, pa.Array], mask: Mask, rng: np.random.Generator) -> pa.Array:
    """Returns the lines with those in `mask` cut after two cells, or with a cell too many at the end."""
    short = _csv(dict(list(cells.items())[:2]))
    long = pc.binary_join_element_wise(text, pa.scalar("?", pa.large_string()), pa.scalar(",", pa.large_string()))
    spoilt = pc.if_else(pa.array(rng.random(mask.size) < 0.5), short, long)
    return pc.if_else(pa.array(mask), spoilt, text)


def _duplicated(lines: Lines, mask: Mask, events: DayEvents, rng: np.random.Generator) -> Lines:
    """Returns the lines and, up to an hour later but within their day, those in `mask` once more."""
    again = lines.take(np.flatnonzero(mask))
    last_ms = np.maximum(events.end_ms - 1, again.due_ms)
    return lines.plus(Lines(again.text, np.minimum(again.due_ms + rng.integers(0, HOUR_MS, mask.sum()), last_ms)))


def _next_day(rng: np.random.Generator, events: DayEvents, size: int) -> Integers:
    """Returns times in the 20 hours after the end of the day, in ms."""
    return events.end_ms + rng.integers(0, 20 * HOUR_MS, size)


def _hours_ms(rng: np.random.Generator, size: int) -> Integers:
    return rng.integers(HOUR_MS, 20 * HOUR_MS, size)


def _decimal(cents: Integers) -> pa.Array:
    whole, rest = (
        pa.array(cents // 100).cast(pa.string()),
        pc.utf8_lpad(pa.array(cents % 100).cast(pa.string()), 2, "0"),
    )
    return pc.binary_join_element_wise(whole, rest, ".")


def _numbered(prefix: str, numbers: Integers) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 7, "0")
    return pc.binary_join_element_wise(pa.scalar(prefix), digits, "")
