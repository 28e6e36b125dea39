"""The simulated shop: who its users are and what it sells, in cohorts that join day by day.

Day 0 is the first day of the logs; the cohort of day 0 is the shop as it opens, the later ones are newcomers. A cohort
follows from (seed, day) and the shop's size alone, so that more days add users and items and change none.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["Items", "Sizes", "Users", "generator", "item_ids", "sizes_for", "user_ids", "write_items", "write_users"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

HOUR_MS = 3_600_000
LATENT_DIM = 4
MAX_TAGS = 4
SEGMENTS = ("student", "family", "professional", "retiree", "collector", "bargain hunter", "gift buyer", "night owl")
GENDERS = ("f", "m", "x")
CITIES = (
    "Zürich", "São Paulo", "東京", "Kraków", "Αθήνα", "القاهرة", "Москва", "Reykjavík", "Montréal", "Lagos",
    "Mumbai", "서울", "Göteborg", "Bogotá", "Đà Nẵng", "Chicago",
)  # fmt: skip
CATEGORIES = (
    "books", "garden", "kitchen", "toys", "shoes", "audio", "cameras", "bicycles", "camping", "lamps", "watches",
    "tea & coffee", "pets", "tools", "music", "antiques",
)  # fmt: skip
TAGS = (
    "new", "sale", "vegan", "handmade", "limited", "vintage", "organic", "wireless", "waterproof", "foldable",
    "premium", "refurbished", "kids", "outdoor", "crème", "été", "限定", "人気", "красота", "mini", "maxi", "led",
    "usb-c", "cotton", "steel", "oak", "glass", "wool", "silent", "fast", "slow", "gift", "🎁", "eco",
)  # fmt: skip
ADJECTIVES = ("Classic", "Très chic", "Smart", "Große", "Little", "Señor", "Quiet", "Žlutá", "Modern", "静かな")
SYLLABLES = ("ka", "lo", "mi", "ne", "ru", "sø", "tá", "vi", "zo", "ël")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large the shop is on day 0, and how many users and items join on each later day."""

    num_users: int
    num_items: int
    num_brands: int
    new_users_per_day: int
    new_items_per_day: int

    def users_on(self, day: int) -> int:
        """Returns the number of users that have joined by `day`."""
        return self.num_users + day * self.new_users_per_day

    def items_on(self, day: int) -> int:
        """Returns the number of items that are on sale on `day`."""
        return self.num_items + day * self.new_items_per_day


@dataclasses.dataclass(frozen=True)
class Users:
    """Users by number. `U` users; traits are indices into the tuples above."""

    first_day: Integers
    signup_lead_ms: Integers
    segment: Integers
    gender: Integers
    city: Integers
    age: Integers
    device: Integers
    unknown: npt.NDArray[np.bool_]  # [U, 3]: age, gender, city left blank in the user table
    activity: Floats
    bias: Floats
    thrift: Floats
    latent: Floats  # [U, LATENT_DIM]


@dataclasses.dataclass(frozen=True)
class Items:
    """Items by number. `I` items; `tags` is [I, MAX_TAGS], -1 where there is none."""

    first_day: Integers
    created_lead_ms: Integers
    category: Integers
    brand: Integers
    price_cents: Integers
    tags: Integers
    adjective: Integers
    quality: Floats
    exposure: Floats
    trend_phase: Floats
    trend_period_days: Floats
    latent: Floats  # [I, LATENT_DIM]


def generator(seed: int, name: str, index: int) -> np.random.Generator:
    """Returns a random generator that follows from a digest of (seed, name, index)."""
    digest = hashlib.sha256(f"{seed}/{name}/{index}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))


def sizes_for(rows_per_day: int) -> Sizes:
    """Returns the size of a shop that shows `rows_per_day` impressions a day.

    A user then sees some 20 impressions a day and an item is seen some 100 times, whatever the scale.
    """
    num_users, num_items = max(50, rows_per_day // 20), max(50, rows_per_day // 100)
    return Sizes(
        num_users=num_users,
        num_items=num_items,
        num_brands=min(200, max(10, num_items // 25)),
        new_users_per_day=max(1, num_users // 100),
        new_items_per_day=max(1, num_items // 100),
    )


def make_users(sizes: Sizes, *, seed: int, days: int) -> Users:
    """Returns the users of the first `days` days."""
    cohorts = [
        _user_cohort(sizes.new_users_per_day if day else sizes.num_users, generator(seed, "users", day), day=day)
        for day in range(days)
    ]
    return Users(**_joined(cohorts))


def make_items(sizes: Sizes, *, seed: int, days: int) -> Items:
    """Returns the items of the first `days` days."""
    rng = generator(seed, "catalogue", 0)
    category_shares = rng.dirichlet(np.full(len(CATEGORIES), 4.0))
    category_log_price = rng.normal(3.3, 0.8, len(CATEGORIES))
    cohorts = []
    for day in range(days):
        size = sizes.new_items_per_day if day else sizes.num_items
        cohort = _item_cohort(size, generator(seed, "items", day), day=day, num_brands=sizes.num_brands)
        draw = generator(seed, "prices", day)
        category = draw.choice(len(CATEGORIES), size=size, p=category_shares)
        log_price = category_log_price[category] + draw.normal(0.0, 0.6, size)
        price_cents = np.maximum(99, np.round(100 * np.exp(log_price))).astype(np.int64)
        cohorts.append(cohort | {"category": category.astype(np.int64), "price_cents": price_cents})
    return Items(**_joined(cohorts))


def user_ids(numbers: Integers) -> pa.Array:
    """Returns the ids of users as text: u0, u1, ..."""
    return _ids("u", numbers)


def item_ids(numbers: Integers) -> pa.Array:
    """Returns the ids of items as text: p0, p1, ..."""
    return _ids("p", numbers)


def write_users(path: Path, users: Users, *, day_starts_ms: Integers) -> None:
    """Writes the user table as Parquet; `day_starts_ms` [days] are the first instants of the days."""

    def named(names: tuple[str, ...], traits: Integers, blank: npt.NDArray[np.bool_] | None = None) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(traits, mask=blank), list(names)).cast(pa.string())

    table = pa.table(
        {
            "user_id": user_ids(np.arange(users.segment.size)),
            "age": pa.array(users.age, mask=users.unknown[:, 0]),
            "gender": named(GENDERS, users.gender, users.unknown[:, 1]),
            "city": named(CITIES, users.city, users.unknown[:, 2]),
            "segment": named(SEGMENTS, users.segment),
            "signup_ms": day_starts_ms[users.first_day] - users.signup_lead_ms,
        }
    )
    pq.write_table(table, path)


def write_items(path: Path, items: Items, *, day_starts_ms: Integers) -> None:
    """Writes the item table as JSON lines; `day_starts_ms` [days] are the first instants of the days."""
    created_ms = day_starts_ms[items.first_day] - items.created_lead_ms
    with path.open("w", encoding="utf-8") as file:
        for number in range(items.category.size):
            brand, category = _brand_name(int(items.brand[number])), CATEGORIES[items.category[number]]
            row = {
                "item_id": f"p{number}",
                "title": f"{ADJECTIVES[items.adjective[number]]} {brand} {category} {number}",
                "category": category,
                "brand": brand,
                "price": int(items.price_cents[number]) / 100,
                "tags": [TAGS[tag] for tag in items.tags[number] if tag >= 0],
                "created_ms": int(created_ms[number]),
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _user_cohort(size: int, rng: np.random.Generator, *, day: int) -> dict[str, npt.NDArray[Any]]:
    oldest_ms = 24 * HOUR_MS if day else 900 * 24 * HOUR_MS
    return {
        "first_day": np.full(size, day),
        "signup_lead_ms": rng.integers(1, oldest_ms, size),
        "segment": rng.integers(0, len(SEGMENTS), size),
        "gender": rng.choice(len(GENDERS), size=size, p=[0.48, 0.48, 0.04]),
        "city": np.minimum(rng.geometric(0.15, size) - 1, len(CITIES) - 1),
        "age": np.clip(np.round(rng.normal(41.0, 15.0, size)), 16, 90).astype(np.int64),
        "device": rng.integers(0, 4, size),
        "unknown": rng.random((size, 3)) < 0.04,
        "activity": np.exp(rng.normal(0.0, 0.7, size)),
        "bias": rng.normal(0.0, 0.12, size),
        "thrift": rng.normal(0.0, 0.05, size),
        "latent": rng.normal(0.0, 1.0, (size, LATENT_DIM)),
    }


def _item_cohort(size: int, rng: np.random.Generator, *, day: int, num_brands: int) -> dict[str, npt.NDArray[Any]]:
    oldest_ms = 24 * HOUR_MS if day else 400 * 24 * HOUR_MS
    # Distinct tags: the first few of a random order of all of them.
    tags = np.argsort(rng.random((size, len(TAGS))), axis=1)[:, :MAX_TAGS]
    quality = rng.normal(0.0, 0.33, size)
    return {
        "first_day": np.full(size, day),
        "created_lead_ms": rng.integers(1, oldest_ms, size),
        "brand": (num_brands * rng.random(size) ** 1.7).astype(np.int64),
        "tags": np.where(np.arange(MAX_TAGS) < rng.integers(0, MAX_TAGS + 1, size)[:, None], tags, -1),
        "adjective": rng.integers(0, len(ADJECTIVES), size),
        "quality": quality,
        "exposure": np.exp(rng.normal(0.0, 0.7, size) + 0.3 * quality),
        "trend_phase": rng.random(size),
        "trend_period_days": rng.uniform(15.0, 45.0, size),
        "latent": rng.normal(0.0, 1.0, (size, LATENT_DIM)),
    }


def _joined(cohorts: list[dict[str, npt.NDArray[Any]]]) -> dict[str, Any]:
    return {name: np.concatenate([cohort[name] for cohort in cohorts]) for name in cohorts[0]}


def _ids(prefix: str, numbers: Integers) -> pa.Array:
    # Made once for each number up to the largest, then taken: ids repeat far more often than they differ.
    largest = int(numbers.max()) + 1 if numbers.size else 0
    names = pa.array([f"{prefix}{number}" for number in range(largest)], pa.string())
    return names.take(pa.array(numbers))


def _brand_name(number: int) -> str:
    first, second = divmod(number, len(SYLLABLES))
    return (SYLLABLES[second] + SYLLABLES[first % len(SYLLABLES)] + ("" if first < len(SYLLABLES) else "x")).title()
