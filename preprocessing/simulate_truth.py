"""The truth of the simulated shop: how likely a user clicks an item that is shown.

The examination hypothesis (Richardson et al. 2007): p = P(examined | position) x P(click | examined), with
P(examined | k) = k^-0.5 and P(click | examined) = sigmoid(intercept + scale x u). The utility u adds

    tastes by segment, gender, age and city for categories, by segment for brands and prices   (visible in the tables)
    the item's quality, its brand and tags, a trend of its own and its category's season        (moving with the day)
    the user's bias and thrift, and the product of latent vectors                               (individual)
    hour of day and device                                                                      (context)

Scale and intercept are set so that log odds deviate by `SPREAD` and the shop's click rate is `CLICK_RATE` for any seed.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from preprocessing.simulate_shop import (
    CATEGORIES,
    CITIES,
    GENDERS,
    LATENT_DIM,
    SEGMENTS,
    TAGS,
    Items,
    Sizes,
    Users,
    generator,
    make_items,
    make_users,
)

__all__ = ["DEVICES", "HOUR_TRAFFIC", "Shown", "Truth", "build_truth", "examination", "expected_auc", "exposures"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

SPREAD = 1.4
CLICK_RATE = 0.12
CALIBRATION_ROWS = 50_000
DEVICES = ("android", "iphone", "desktop", "tablet")
IMPRESSIONS_PER_REQUEST = 10
# Relative traffic by local hour: quiet at night, highest in the evening.
HOUR_TRAFFIC = 1.2 - np.cos(2 * np.pi * (np.arange(24) - 3.5) / 24) + 0.6 * np.exp(-((np.arange(24) - 20.5) ** 2) / 6)


@dataclasses.dataclass(frozen=True)
class Shown:
    """What is shown to whom, in what context: `N` impressions of one day, by numbers."""

    user: Integers
    item: Integers
    device: Integers
    hour: Integers
    position: Integers  # from 1
    price_cents: Integers


@dataclasses.dataclass(frozen=True)
class Truth:
    """The shop's people, goods and tastes, ready to give probabilities."""

    users: Users
    items: Items
    user_category: Floats  # [U, C]
    segment_brand: Floats  # [S, B]
    user_thrift: Floats  # [U]
    item_appeal: Floats  # [I], without what moves
    season_phase: Floats  # [C]
    hour: Floats  # [24]
    device: Floats  # [4]
    mean_log_price: float
    scale: float = 1.0
    intercept: float = 0.0

    def examined_click_probability(self, shown: Shown, *, day: int) -> Floats:
        """Returns the probability of a click given that the impression is looked at, [N]."""
        return _sigmoid(self.intercept + self.scale * self.utility(shown, day=day))

    def utility(self, shown: Shown, *, day: int) -> Floats:
        """Returns what the log odds are linear in, [N]."""
        user, item = shown.user, shown.item
        category = self.items.category[item]
        log_price = np.log(shown.price_cents) - self.mean_log_price
        result = self.user_category[user, category] + self._appeal(day)[item] + self.users.bias[user]
        result += self.segment_brand[self.users.segment[user], self.items.brand[item]]
        result -= self.user_thrift[user] * log_price
        result += np.einsum("nk,nk->n", self.users.latent[user], self.items.latent[item]) * (0.1 / LATENT_DIM**0.5)
        return result + self.hour[shown.hour] + self.device[shown.device]

    def _appeal(self, day: int) -> Floats:
        trend = np.sin(2 * np.pi * (day / self.items.trend_period_days + self.items.trend_phase))
        season = np.sin(2 * np.pi * (day / 30.0 + self.season_phase))
        return self.item_appeal + 0.12 * trend + 0.15 * season[self.items.category]


def examination(position: Integers) -> Floats:
    """Returns the probability that a position, counted from 1, is looked at."""
    return np.asarray(position ** np.float64(-0.5), np.float64)


def exposures(items: Items, *, day: int) -> Floats:
    """Returns how often each item is shown on a day, in relation to the others; newcomers are pushed."""
    boost = np.exp(-(day - items.first_day) / 2.0)
    return np.asarray(items.exposure * (1.0 + np.where(items.first_day > 0, boost, 0.0)), np.float64)


def build_truth(sizes: Sizes, *, seed: int, days: int) -> Truth:
    """Returns the truth of a shop over its first `days` days; more days change nothing on the earlier ones."""
    opening = _uncalibrated(sizes, seed=seed, days=1)
    shown = _sample(opening, generator(seed, "calibration", 0))
    utility = opening.utility(shown, day=0)
    scale = float(SPREAD / utility.std())
    intercept = _intercept(scale * utility, examination(shown.position))
    return dataclasses.replace(_uncalibrated(sizes, seed=seed, days=days), scale=scale, intercept=intercept)


def expected_auc(probabilities: Floats, scores: Floats) -> float:
    """Returns the AUC that `scores` have when each row is a click with its probability.

    AUC = sum over pairs (i, j) of p_i (1 - p_j) ([s_i > s_j] + 0.5 [s_i = s_j]) / sum over pairs of p_i (1 - p_j): a
    row counts as p_i clicks and 1 - p_i others. With `scores` = `probabilities` it is the best that any score reaches.

    Args:
        probabilities: true click probabilities, [N].
        scores: what is judged, [N].
    """
    order = np.argsort(scores)
    ranked = scores[order]
    starts = np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1])))
    clicks = np.add.reduceat(probabilities[order], starts)
    others = np.add.reduceat(1.0 - probabilities[order], starts)
    won = clicks * (np.cumsum(others) - 0.5 * others)
    return float(won.sum() / (clicks.sum() * others.sum()))


def _uncalibrated(sizes: Sizes, *, seed: int, days: int) -> Truth:
    users, items = make_users(sizes, seed=seed, days=days), make_items(sizes, seed=seed, days=days)
    rng = generator(seed, "tastes", 0)
    num_categories = len(CATEGORIES)
    # Of each pair: how keen a group is on anything, and on what.
    by_segment = rng.normal(0.0, 0.3, (len(SEGMENTS), 1)) + rng.normal(0.0, 0.34, (len(SEGMENTS), num_categories))
    by_gender = rng.normal(0.0, 0.1, (len(GENDERS), 1)) + rng.normal(0.0, 0.25, (len(GENDERS), num_categories))
    by_city = rng.normal(0.0, 0.15, (len(CITIES), 1))
    by_age = rng.normal(0.0, 0.15) + rng.normal(0.0, 0.15, num_categories)
    brand, tag = rng.normal(0.0, 0.2, sizes.num_brands), np.append(rng.normal(0.0, 0.1, len(TAGS)), 0.0)
    opening_items = slice(0, sizes.num_items)
    return Truth(
        users=users,
        items=items,
        user_category=by_segment[users.segment]
        + by_gender[users.gender]
        + by_city[users.city]
        + np.outer((users.age - 41.0) / 15.0, by_age),
        segment_brand=rng.normal(0.0, 0.1, (len(SEGMENTS), sizes.num_brands)),
        user_thrift=rng.normal(0.15, 0.1, len(SEGMENTS))[users.segment] + users.thrift,
        item_appeal=items.quality + brand[items.brand] + tag[items.tags].sum(axis=1),
        season_phase=rng.random(num_categories),
        hour=0.3 * np.sin(2 * np.pi * (np.arange(24) / 24 + rng.random())),
        device=rng.normal(0.0, 0.3, len(DEVICES)),
        mean_log_price=float(np.log(items.price_cents[opening_items]).mean()),
    )


def _sample(truth: Truth, rng: np.random.Generator) -> Shown:
    """Returns impressions of the first day, drawn one by one."""
    size = CALIBRATION_ROWS
    exposure = exposures(truth.items, day=0)
    item = rng.choice(exposure.size, size=size, p=exposure / exposure.sum())
    return Shown(
        user=rng.choice(truth.users.activity.size, size=size, p=truth.users.activity / truth.users.activity.sum()),
        item=item,
        device=rng.integers(0, len(DEVICES), size),
        hour=rng.choice(24, size=size, p=HOUR_TRAFFIC / HOUR_TRAFFIC.sum()),
        position=rng.integers(1, IMPRESSIONS_PER_REQUEST + 1, size),
        price_cents=truth.items.price_cents[item],
    )


def _intercept(log_odds: Floats, examined: Floats) -> float:
    """Returns what to add to the log odds for a click rate of `CLICK_RATE`, by bisection."""
    low, high = -20.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        too_low = (examined * _sigmoid(log_odds + middle)).mean() < CLICK_RATE
        low, high = (middle, high) if too_low else (low, middle)
    return (low + high) / 2


def _sigmoid(log_odds: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-log_odds)), np.float64)
