"""What the numbers of a record mean: ids back to tokens, buckets and hours, dense inputs back to raw numbers.

The reverse of the id layout in `vocabulary`, read from what a dataset keeps of its transform; no TensorFlow is needed.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from preprocessing import vocabulary as layout
from preprocessing.dataset import TRANSFORM_FOLDER
from preprocessing.errors import ArtefactError
from preprocessing.shown_text import shown_text
from preprocessing.vocabulary import Vocabulary

__all__ = ["UNKNOWN", "Meanings", "load_meanings"]

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TRANSFORM_FILE = "transform.json"
_MISSING = "missing"
UNKNOWN = "not in the vocabulary"


@dataclasses.dataclass(frozen=True)
class Meanings:
    """The features of a dataset and what was learned for them.

    Attributes:
        plans: of each feature by name: the feature as declared, fill, mean, deviation, boundaries.
        vocabularies: folder of the tables' vocabularies.
    """

    plans: Mapping[str, Mapping[str, Any]]
    vocabularies: Path
    _loaded: dict[str, Vocabulary] = dataclasses.field(default_factory=dict)

    def kind(self, feature: str) -> str:
        """Returns the kind of a feature."""
        return str(self.plans[feature]["feature"]["kind"])

    def columns(self, feature: str) -> tuple[str, ...]:
        """Returns the raw columns that a feature reads."""
        declared = self.plans[feature]["feature"]
        return tuple(declared.get("columns") or (declared.get("column") or feature,))

    def vocabulary(self, feature: str) -> Vocabulary:
        """Returns the vocabulary of a feature's table."""
        table = self.plans[feature]["feature"].get("table") or feature
        if table not in self._loaded:
            self._loaded[table] = layout.load(self.vocabularies / f"{table}.parquet")
        return self._loaded[table]

    def of_id(self, feature: str, number: int) -> str:
        """Returns what an id stands for.

        Raises:
            ArtefactError: if no value has this id.
        """
        if number == layout.MISSING_ID:
            return _MISSING
        kind, declared = self.kind(feature), self.plans[feature]["feature"]
        if kind in ("categorical", "multivalued"):
            return self._of_token(feature, number)
        if kind in ("hashed", "crossed"):
            return _within(feature, number - layout.HASH_OFFSET, declared["buckets"], "hash bucket {0} of {1}")
        if kind == "integer":
            return _of_integer(feature, number, declared["size"])
        if kind in ("hour_of_day", "day_of_week"):
            return _of_period(feature, kind, number - layout.PERIOD_OFFSET)
        return self._of_bucket(feature, number - layout.BUCKET_OFFSET)

    def _of_bucket(self, feature: str, place: int) -> str:
        plan = self.plans[feature]
        bounds = plan["feature"]["boundaries"] if self.kind(feature) == "bucketed_list" else plan["boundaries"]
        _within(feature, place, len(bounds) + 1, "{0}")
        return f"bucket {place}: {_interval(bounds, place)}"

    def _of_token(self, feature: str, number: int) -> str:
        words = self.vocabulary(feature)
        if number < words.first_token_id:
            return f"{UNKNOWN} (bucket {number - layout.OOV_OFFSET} of {words.num_oov})"
        place = number - words.first_token_id
        _within(feature, place, len(words.tokens), "{0}")
        return f"{shown_text(words.tokens[place].as_py())} (seen {int(words.counts[place]):,} times in train)"

    def of_dense(self, feature: str, value: float) -> str:
        """Returns the raw number that a dense input stands for, before clipping."""
        plan = self.plans[feature]
        number = value * plan["deviation"] + plan["mean"]
        if plan["feature"]["log1p"]:
            number = math.copysign(math.expm1(min(abs(number), 700.0)), number)
        return f"{number:.6g}"


def _within(feature: str, place: int, size: int, text: str) -> str:
    if not 0 <= place < size:
        raise ArtefactError(
            f"feature {feature!r}: no value has id {place} of {size}; the records are of another dataset"
        )
    return text.format(place, size)


def _of_integer(feature: str, number: int, size: int) -> str:
    if number == layout.INTEGER_OOV_ID:
        return f"not a number from 0 to {size - 1}"
    return _within(feature, number - layout.INTEGER_OFFSET, size, "{0}")


def _of_period(feature: str, kind: str, place: int) -> str:
    number = int(_within(feature, place, 24 if kind == "hour_of_day" else 7, "{0}"))
    return f"{number:02d}:00 to {number:02d}:59" if kind == "hour_of_day" else _DAYS[number]


def _interval(bounds: list[float], place: int) -> str:
    if not bounds:
        return "any number"
    if place == 0:
        return f"below {bounds[0]:g}"
    if place == len(bounds):
        return f"{bounds[-1]:g} and above"
    return f"from {bounds[place - 1]:g} to below {bounds[place]:g}"


def load_meanings(folder: Path) -> Meanings:
    """Returns the meanings of a dataset's ids.

    Raises:
        ArtefactError: if the dataset keeps no transform, or another version's.
    """
    path = folder / TRANSFORM_FOLDER / _TRANSFORM_FILE
    try:
        features = json.loads(path.read_text(encoding="utf-8"))["features"]
        plans = {plan["feature"]["name"]: plan for plan in features}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{path} cannot be read: {error!r}; run preprocess again") from error
    return Meanings(plans, folder / "vocabularies")
