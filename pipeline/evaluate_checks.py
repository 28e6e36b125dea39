"""What a config says of evaluation and gate, held against its data."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pipeline.config_columns import unknown
from pipeline.evaluate_spec import MEASURED, EvaluateSpec, GateRule
from pipeline.train_spec import TrainSpec
from preprocessing.spec import DataSpec

__all__ = ["check_evaluation", "check_label_names"]


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


def check_label_names(data: DataSpec, train: TrainSpec, gate: Sequence[GateRule]) -> Iterator[str]:
    """Yields a line for each label that is named and does not exist."""
    labels = [label.name for label in data.labels]
    named = [(f"gate[{i}].label", rule.label) for i, rule in enumerate(gate)]
    named += [("train.early_stopping.label", train.early_stopping.label)]
    named += [("train.label_weights", label) for label in train.label_weights]
    for path, label in named:
        if label is not None and label not in labels:
            yield unknown(path, label, "label", labels)
    if len(labels) == 1 and train.early_stopping.label == labels[0]:
        yield f"train.early_stopping.label: {labels[0]!r} is the only label; leave it out"
