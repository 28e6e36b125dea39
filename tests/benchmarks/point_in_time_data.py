"""The shop of the point-in-time benchmark: a week of impressions, its clicks and its items, as Parquet files.

    impressions-D.parquet   impression_id, request_id, user_id, item_id, shown_ms: a file for each of `DAYS` days
    clicks.parquet          user_id, item_id, clicked_ms; some are too late for their impression
    items.parquet           item_id, category

Users and items are Zipf. No two clicks come at once, so that no side needs a rule for ties.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DAYS = 7
MS_PER_DAY = 86_400_000
FIRST_DAY = 20_454  # 2026-01-01, in days since 1970
WINDOW_MS = MS_PER_DAY
NUM_CATEGORIES = 200
LATE_SHARE = 0.03
ROW_GROUP = 1 << 18


def write_logs(folder: Path, *, num_impressions: int, num_clicks: int, seed: int) -> None:
    """Writes the files into `folder`."""
    rng = np.random.default_rng(seed)
    num_items = max(num_impressions // 100, NUM_CATEGORIES)
    rows = _impressions(rng, num_impressions, num_items=num_items)
    days = rows["shown_ms"].to_numpy() // MS_PER_DAY
    for day, first in zip(*np.unique(days, return_index=True), strict=True):
        size = int(np.searchsorted(days, day, side="right")) - int(first)
        path = folder / f"impressions-{day - FIRST_DAY}.parquet"
        pq.write_table(rows.slice(int(first), size), path, row_group_size=ROW_GROUP)
    pq.write_table(_clicks(rng, rows, num_clicks), folder / "clicks.parquet", row_group_size=ROW_GROUP)
    categories = _words("c", rng.integers(0, NUM_CATEGORIES, num_items), NUM_CATEGORIES)
    items = {"item_id": _words("i", np.arange(num_items), num_items), "category": categories}
    pq.write_table(pa.table(items), folder / "items.parquet")


def _impressions(rng: np.random.Generator, num_rows: int, *, num_items: int) -> pa.Table:
    """Returns impressions in order of time, ten to a request."""
    times = np.sort(rng.integers(0, DAYS * MS_PER_DAY, num_rows)) + FIRST_DAY * MS_PER_DAY
    places, num_users = np.arange(num_rows), max(num_rows // 25, 10)
    return pa.table(
        {
            "impression_id": _words("m", places, num_rows),
            "request_id": _words("r", places // 10, -(-num_rows // 10)),
            "user_id": _words("u", _zipf(rng, num_users, num_rows), num_users),
            "item_id": _words("i", _zipf(rng, num_items, num_rows), num_items),
            "shown_ms": times,
        }
    )


def _clicks(rng: np.random.Generator, rows: pa.Table, num_clicks: int) -> pa.Table:
    """Returns clicks in order of time, each on an impression's user and item."""
    clicked = rng.permutation(rows.num_rows)[:num_clicks]
    late = np.where(rng.random(num_clicks) < LATE_SHARE, WINDOW_MS, 0)
    times = rows["shown_ms"].to_numpy()[clicked] + rng.integers(1_000, 3_600_000, num_clicks) + late
    order = np.argsort(times)
    times = np.maximum.accumulate(times[order] - np.arange(num_clicks)) + np.arange(num_clicks)
    keys = rows.select(["user_id", "item_id"]).take(pa.array(clicked[order]))
    return keys.append_column("clicked_ms", pa.array(times))


def _words(prefix: str, places: np.ndarray, size: int) -> pa.Array:
    words = pa.array([f"{prefix}{place:08d}" for place in range(size)])
    return pa.DictionaryArray.from_arrays(pa.array(places), words).cast(pa.string())


def _zipf(rng: np.random.Generator, size: int, num_rows: int) -> np.ndarray:
    """Returns places drawn with weights 1 / rank^0.8; which place has which rank is random."""
    weights = 1.0 / np.arange(1, size + 1) ** 0.8
    ranks = np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(num_rows)).clip(max=size - 1)
    return rng.permutation(size)[ranks]
