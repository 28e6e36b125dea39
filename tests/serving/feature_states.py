"""Random logs over days of a zone, the state after one of the days, and the offline columns of the day after."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from preprocessing.periods import period_start_ms
from preprocessing.point_in_time import derive
from preprocessing.spec import CountColumn, DerivedColumn, HistoryColumn, RateColumn, columns_made
from serving.features import FeatureCompleter
from serving.features_embedded import EmbeddedStore
from serving.features_layout import Clock
from serving.features_snapshot import write_snapshot
from tests.preprocessing.point_in_time_reference import Row, table_of_rows

HOUR_S, DAY_S = 3600.0, 86400.0
KEYS = (("user",), ("item",), ("user", "category"), ("category", "item"))


def specs_of(key: tuple[str, ...]) -> list[DerivedColumn]:
    """Returns every kind of column over windows of an hour, a day, a week and all."""
    end = "_".join(key)
    windows = {"1h": HOUR_S, "1d": DAY_S, "7d": 7 * DAY_S, "all": None}
    columns: list[DerivedColumn] = []
    for name, window in windows.items():
        columns.append(CountColumn(kind="count", name=f"shown_{name}_{end}", key=key, window_s=window))
        columns.append(
            RateColumn(
                kind="rate", name=f"ctr_{name}_{end}", key=key, label="click", window_s=window, prior=0.1, strength=3.0
            )
        )
    columns.append(CountColumn(kind="count", name=f"buys_{end}", key=key, label="buy", window_s=DAY_S))
    columns.append(
        HistoryColumn(
            kind="history", name=f"seen_{end}", key=key, value="item", label="click", length=3, ages=f"age_{end}"
        )
    )
    columns.append(
        HistoryColumn(
            kind="history", name=f"users_{end}", key=key, value="user", label="buy", length=2, horizon_s=1.5 * DAY_S
        )
    )
    columns.append(
        HistoryColumn(kind="history", name=f"plain_{end}", key=key, value="category", label="click", length=5)
    )
    return columns


ALL_COLUMNS = [name for key in KEYS for one in specs_of(key) for name in columns_made(one)]


@dataclasses.dataclass(frozen=True)
class Days:
    """A log, and the day whose end the state is taken at."""

    rows: list[Row]
    state_day: int
    time_zone: str

    def starts_ms(self, day: int) -> int:
        return period_start_ms(day, "day", time_zone=self.time_zone)

    @property
    def state_ms(self) -> int:
        return self.starts_ms(self.state_day + 1)

    def clock(self, freshness: Any = "day") -> Clock:
        return Clock(freshness=freshness, period="day", time_zone=self.time_zone, state_ms=self.state_ms)

    def settled(self) -> Days:
        """Returns the log without what becomes known after the state."""
        rows = [
            dataclasses.replace(
                row,
                known=tuple(one if one is not None and one < self.state_ms else None for one in row.known),  # type: ignore[arg-type]
            )
            for row in self.rows
            if row.visible < self.state_ms
        ]
        return dataclasses.replace(self, rows=rows)

    def states(self) -> list[tuple[list[DerivedColumn], pa.Table]]:
        """Returns the state after the day, of each key, from the rows until then."""
        known = [row for row in self.rows if row.time < self.state_ms]
        table = table_of_rows(known)
        return [
            (specs_of(key), derive(table, specs_of(key), base=None, base_ms=0, ends_ms=[self.state_ms]).states[0])
            for key in KEYS
        ]

    def offline(self, asked: Sequence[Row]) -> pa.Table:
        """Returns the point-in-time columns of rows, made with the log until the state, each as of its own cutoff."""
        known = [dataclasses.replace(row, query=False) for row in self.rows if row.time < self.state_ms]
        columns: dict[str, Any] = {}
        for key in KEYS:
            made = derive(table_of_rows([*known, *asked]), specs_of(key), base=None, base_ms=0, ends_ms=[]).columns
            columns |= {name: made[name].combine_chunks() for name in made.column_names}
        return pa.table(columns)


def random_days(seed: int, *, time_zone: str, state_day: int, size: int = 150) -> Days:
    """Returns a log of about a week before the end of a day, with late arrivals and labels."""
    chance = random.Random(seed)
    end = period_start_ms(state_day + 1, "day", time_zone=time_zone)
    rows = []
    for order in range(size):
        time = end - int(chance.choice([HOUR_S, DAY_S, 9 * DAY_S]) * 1000 * chance.random()) - chance.choice([0, 0, 1])
        delays = [chance.choice([0, 1, 999, 1000, 5_000_000, 90_000_000]) for _ in range(3)]
        rows.append(
            Row(
                user=chance.choice([b"a", b"b", b"", "\u00e9".encode(), b"\xff\x01", None]),
                category=chance.choice([0, -1, 2**63 - 1, None]),
                item=chance.choice([None, *range(6)]),
                time=time,
                visible=time + delays[0],
                known=tuple(None if chance.random() < 0.4 else time + delay for delay in delays[1:]),  # type: ignore[arg-type]
                cutoff=time,
                query=False,
                order=order,
            )
        )
    return Days(rows, state_day, time_zone)


def requests(seed: int, days: Days, *, now_ms: int, cutoff_ms: int, size: int = 40) -> list[Row]:
    """Returns rows of one moment, of known keys, of unknown ones and of none."""
    chance = random.Random(seed + 1)
    return [
        Row(
            user=chance.choice([b"a", b"b", b"", "\u00e9".encode(), b"\xff\x01", b"new", None]),
            category=chance.choice([0, -1, 2**63 - 1, 77, None]),
            item=chance.choice([None, 99, *range(6)]),
            time=now_ms,
            visible=now_ms,
            known=(None, None),
            cutoff=cutoff_ms,
            query=True,
            order=10**6 + order,
        )
        for order in range(size)
    ]


def raw(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns rows as a client holds them: what is missing is absent, text is text where it can be."""
    found = []
    for row in rows:
        plain = {"user": row.user, "category": row.category, "item": row.item}
        found.append({name: _text(value) for name, value in plain.items() if value is not None})
    return found


def _text(value: Any) -> Any:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def write_days(days: Days, folder: Path, *, freshness: str = "day", version: int = 1) -> Path:
    """Writes the snapshot of a model that takes every column and the item, but neither user nor category."""
    write_snapshot(
        folder,
        days.states(),
        clock=days.clock(freshness),
        model_name="m",
        version=version,
        inputs=[*ALL_COLUMNS, "item"],
        note={},
    )
    return folder


def completer(folder: Path) -> FeatureCompleter:
    return FeatureCompleter(EmbeddedStore(folder))


def as_columns(found: dict[str, list[Any]], schema: pa.Schema) -> pa.Table:
    """Returns what a look-up found in the types of the offline columns."""
    return pa.table({name: pa.array(found[name], schema.field(name).type) for name in schema.names})


def content(table: pa.Table) -> bytes:
    """Returns the bytes of a table, which are equal for equal values and types."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()
