"""Vocabularies that grow: tokens keep their ids, day by day as in one go."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter

from preprocessing import analysis
from preprocessing.spec import FeatureSpec
from preprocessing.token_counts import TokenCounts
from preprocessing.vocabulary import Vocabulary, build, grow
from preprocessing.vocabulary_chain import grown_vocabularies

FEATURES: list[FeatureSpec] = TypeAdapter(list[FeatureSpec]).validate_python(
    [{"name": "item", "kind": "categorical", "min_count": 2}, {"name": "other", "kind": "categorical", "table": "item",
      "min_count": 2}]
)  # fmt: skip


def counted(**counts: int) -> TokenCounts:
    tokens = pa.array([name.encode() for name in counts], pa.large_binary())
    return TokenCounts(tokens, np.array(list(counts.values()), np.int64))


def words(vocabulary: Vocabulary) -> list[tuple[bytes, int]]:
    return list(zip(vocabulary.tokens.to_pylist(), vocabulary.counts.tolist(), strict=True))


def test_new_tokens_come_after_the_old_ones_which_stay_even_unseen() -> None:
    first = build(counted(b=5, a=9, rare=1), min_count=2, max_size=None, num_oov=3)
    grown = grow(first, counted(c=4, d=4, a=1, e=1, f=7), min_count=2, max_size=None)
    assert words(first) == [(b"a", 9), (b"b", 5)]
    assert words(grown) == [(b"a", 1), (b"b", 0), (b"f", 7), (b"c", 4), (b"d", 4)]
    assert grown.num_oov == 3
    assert words(grow(first, counted(c=4, f=7), min_count=2, max_size=3)) == [(b"a", 0), (b"b", 0), (b"f", 7)]
    assert words(grow(first, counted(c=4), min_count=2, max_size=1)) == [(b"a", 0), (b"b", 0)]


def states(folder: Path) -> list[Path]:
    folder.mkdir()
    days = [["x", "x", "y"], ["y", "z", "z", "z"], ["w", "w", "x", "z"]]
    paths = []
    for i, items in enumerate(days):
        table = pa.table({"item": [v.encode() for v in items], "other": [b"q"] * len(items)})
        paths.append(folder / f"day{i}.state")
        paths[-1].write_bytes(analysis.to_bytes(analysis.analyse(table, FEATURES)))
    return paths


def test_a_chain_grown_day_by_day_equals_one_grown_at_once(tmp_path: Path) -> None:
    days = states(tmp_path / "states")
    windows = [days[:1], days[:2], days[1:3]]
    for n in (1, 2, 3):
        daily = grown_vocabularies(FEATURES, windows[:n], root=tmp_path / "daily")
    at_once = grown_vocabularies(FEATURES, windows, root=tmp_path / "at-once")
    assert words(daily["item"]) == words(at_once["item"])
    assert [token for token, _ in words(at_once["item"])] == [b"q", b"x", b"z", b"y", b"w"]
    assert len([path for path in (tmp_path / "daily").iterdir()]) == 3  # each day was grown once
    fresh = grown_vocabularies(FEATURES, windows[2:], root=tmp_path / "daily")
    assert [token for token, _ in words(fresh["item"])] == [b"q", b"z", b"w"]
