"""Vocabularies that grow from run to run: a token keeps its id as long as the chain of training windows goes on.

The vocabulary of a window follows from the windows before it, one for each day that a run could have ended on, so a
run from scratch over the same days finds the same one. Each is kept, so that a daily run grows the last by one day.

    ROOT/<key>/<table>.parquet
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

from preprocessing import analysis
from preprocessing.manifest import complete, digest, exists
from preprocessing.spec import CategoricalFeature, FeatureSpec, MultivaluedFeature
from preprocessing.transform_plan import count_tables
from preprocessing.vocabulary import Vocabulary, build, grow, load

__all__ = ["grown_vocabularies"]

# Raised when a change of our code changes which token gets which id.
_FORMAT = 1


def grown_vocabularies(
    features: Sequence[FeatureSpec], windows: Sequence[Sequence[Path]], *, root: Path
) -> dict[str, Vocabulary]:
    """Returns the vocabulary of each table after the last window.

    Args:
        features: the features section of the config.
        windows: of each training window, oldest first, the files of its analysis states; their names tell content.
        root: where vocabularies are kept.
    """
    rules = [
        one.model_dump(mode="json") for one in features if isinstance(one, CategoricalFeature | MultivaluedFeature)
    ]
    known: dict[str, Vocabulary] | None = None
    key = digest([_FORMAT, rules])
    for window in windows:
        key = digest([key, [path.name for path in window]])
        folder = root / key
        if not exists(folder):
            _save(_next(features, window, known), folder)
        known = {path.stem: load(path) for path in sorted(folder.glob("*.parquet"))}
    return known or {}


def _next(
    features: Sequence[FeatureSpec], window: Sequence[Path], before: dict[str, Vocabulary] | None
) -> dict[str, Vocabulary]:
    state = analysis.merge([analysis.from_bytes(path.read_bytes()) for path in window])
    result = {}
    for table, (owner, counts) in count_tables(features, state).items():
        if before is None:
            result[table] = build(counts, min_count=owner.min_count, max_size=owner.max_size, num_oov=owner.oov_buckets)
        else:
            result[table] = grow(before[table], counts, min_count=owner.min_count, max_size=owner.max_size)
    return result


def _save(vocabularies: dict[str, Vocabulary], folder: Path) -> None:
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.partial")
    temporary.mkdir(parents=True)
    for table, vocabulary in vocabularies.items():
        vocabulary.save(temporary / f"{table}.parquet")
    complete(temporary, folder, manifest={"stage": "vocabularies", "content": {"tables": sorted(vocabularies)}})
