"""What a config says of evaluation and gate, held against its data."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pipeline.config_columns import unknown
from pipeline.evaluate_spec import MEASURED, EvaluateSpec, GateRule
from preprocessing.spec import DataSpec

__all__ = ["check_evaluation"]


def check_evaluation(
    data: DataSpec, evaluate: EvaluateSpec, gate: Sequence[GateRule], *, columns: Collection[str]
) -> Iterator[str]:
    """Yields a line for each broken rule; `columns` are those of the joined rows."""
    for i, part in enumerate(evaluate.slices):
        if part.column not in columns:
            yield unknown(f"evaluate.slices[{i}].column", part.column, "column", columns)
    sliced = [part.column for part in evaluate.slices]
    for i, rule in enumerate(gate):
        if rule.metric == "gauc" and data.roles.user is None:
            yield f"gate[{i}].metric: gauc is a mean over users, so it needs data.roles.user"
        if rule.metric in ("ndcg", "recall") and data.roles.request is None:
            yield f"gate[{i}].metric: {rule.metric} is a mean over requests, so it needs data.roles.request"
        if rule.slice is not None and not any(rule.slice.startswith((f"{name}=", f"{name}: ")) for name in sliced):
            known = f"evaluate.slices has {', '.join(sliced)}" if sliced else "evaluate.slices is empty"
            yield f"gate[{i}].slice: {rule.slice!r} is of none of the sliced columns; {known}"
        if rule.against is not None and not evaluate.resamples and rule.metric not in MEASURED:
            yield f"gate[{i}].against: a comparison needs evaluate.resamples above 0"
