"""A user and candidates as the arrays of the signature `rank`, and its answer as a ranking.

Which columns are the candidates' is told by the server: in `rank` they have one dimension more than in
`serving_default`. `N` candidates, `k` best of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from preprocessing.errors import ServingError
from serving.client_calls import Answer, SignatureInfo
from serving.rows import InputColumn, rows_to_arrays

__all__ = ["RANK_SIGNATURE", "TOP_INDICES", "TOP_SCORES", "Ranking", "candidate_columns", "rank_arrays", "read_ranking"]

RANK_SIGNATURE = "rank"
TOP_INDICES, TOP_SCORES = "top_indices", "top_scores"


@dataclasses.dataclass(frozen=True)
class Ranking:
    """What a model makes of candidates.

    Attributes:
        scores: float32 [N] for each label.
        top_indices: int64 [k], the places of the best candidates by the first label, best first.
        top_scores: float32 [k], their scores.
        version: of the model; None where REST was asked for the newest.
    """

    scores: dict[str, NDArray[np.float32]]
    top_indices: NDArray[np.int64]
    top_scores: NDArray[np.float32]
    version: int | None


def candidate_columns(rank: SignatureInfo, named: SignatureInfo) -> list[InputColumn]:
    """Returns the candidates' columns as `serving_default` has them, given both signatures."""
    ranks = {column.name: len(column.shape or ()) for column in rank.inputs}
    return [column for column in named.inputs if ranks.get(column.name, 0) > len(column.shape or ())]


def rank_arrays(
    context: Mapping[str, Any],
    candidates: Sequence[Mapping[str, Any]],
    *,
    rank: SignatureInfo,
    named: SignatureInfo,
    ignore_unknown: bool = False,
) -> dict[str, NDArray[Any]]:
    """Returns the user's columns, [1] or [1, L], and the candidates', [1, N] or [1, N, L].

    Args:
        context: columns of the user and the request.
        candidates: columns of each candidate.
        rank: the signature.
        named: `serving_default` of the same model.
        ignore_unknown: drop keys that are no column of theirs.

    Raises:
        ServingError: if there is no candidate, or a row does not fit.
    """
    if not candidates:
        raise ServingError("there are no candidates to rank")
    of_candidates = candidate_columns(rank, named)
    names = {column.name for column in of_candidates}
    wanted = {column.name for column in rank.inputs}
    of_user = [column for column in named.inputs if column.name in wanted - names]
    users = rows_to_arrays([context], of_user, ignore_unknown=ignore_unknown)
    items = rows_to_arrays(candidates, of_candidates, ignore_unknown=ignore_unknown)
    return {**users, **{name: values[None] for name, values in items.items()}}


def read_ranking(answer: Answer) -> Ranking:
    """Returns the ranking of one request's candidates."""
    outputs = {name: values[0] for name, values in answer.outputs.items()}
    top_indices, top_scores = outputs.pop(TOP_INDICES), outputs.pop(TOP_SCORES)
    # Fewer candidates than k leave places without one.
    used = top_indices >= 0
    return Ranking(outputs, top_indices[used].astype(np.int64), top_scores[used], answer.version)
