"""What a config says of evaluation and of the gate."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["MEASURED", "OF_MODEL", "EvaluateSpec", "GateRule", "MetricName", "SliceSpec"]

_STRICT = ConfigDict(frozen=True, extra="forbid")

MetricName = Literal[
    "auc",
    "pr_auc",
    "gauc",
    "ndcg",
    "recall",
    "log_loss",
    "normalised_entropy",
    "calibration",
    "ece",
    "agreement",
    "size_mb",
    "latency_ms",
    "parity",
    "column_auc",
    "repeated_rows",
]
# Figures of the exported model, and of the data: measured when a rule asks for them.
OF_MODEL = ("size_mb", "latency_ms", "parity")
MEASURED = (*OF_MODEL, "column_auc", "repeated_rows")


_WANTED_MAX = {"parity": "1.0e-6", "column_auc": "0.95", "repeated_rows": "0.001"}


class SliceSpec(BaseModel):
    """Rows that are judged by themselves."""

    model_config = _STRICT

    column: str = Field(description="A column of the joined rows.")
    by: Literal["value", "activity"] = Field(
        "value", description="activity: by the number of training rows with the same value; none of them is new."
    )
    top: int = Field(10, ge=1, description="Of value: the most frequent values; the rest is one slice.")
    bounds: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (1, 10, 100, 1000), min_length=1, description="Of activity: the least number of training rows of each slice."
    )

    @model_validator(mode="after")
    def _rising(self) -> SliceSpec:
        if list(self.bounds) != sorted(set(self.bounds)):
            raise ValueError(f"bounds must rise, got {', '.join(map(str, self.bounds))}")
        return self


class EvaluateSpec(BaseModel):
    """On what the exported model is judged."""

    model_config = _STRICT

    batch_size: int = Field(4096, ge=1)
    agreement: float = Field(
        1e-5, gt=0, description="Largest difference allowed between the trainer's scores and the exported model's."
    )
    top_k: int = Field(10, ge=1, description="Of ndcg and recall, which need data.roles.request.")
    slices: tuple[SliceSpec, ...] = ()
    resamples: int = Field(200, ge=0, description="Of the bootstrap over users that gives intervals; 0 for none.")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="Of the intervals.")
    importance_rows: int = Field(
        20_000, ge=0, description="Test rows on which each column's permutation importance is measured; 0 for none."
    )
    latency_rows: int = Field(32, ge=1, description="Rows of a request whose latency is measured.")
    parity_rows: int = Field(
        256, ge=1, description="Test rows that `metric: parity` sends to a running server, beside hostile ones."
    )


class GateRule(BaseModel):
    """Bounds on a figure, or on how much worse than the live model's it may be."""

    model_config = _STRICT

    split: Literal["valid", "test"] = "test"
    metric: MetricName
    label: str | None = Field(None, description="Of several labels, whose figure; the first one's by default.")
    slice: str | None = Field(None, description="One of evaluate.slices by its name in metrics.json; else all rows.")
    min: float | None = None
    max: float | None = None
    against: Literal["live"] | None = Field(None, description="Compare with the live model on the same rows.")
    margin: float = Field(0.0, ge=0, description="Of against: how much worse it may be.")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="Of against: that it is not worse by more than that.")

    @model_validator(mode="after")
    def _bounds_fit(self) -> GateRule:
        if self.against is not None and (self.min is not None or self.max is not None):
            raise ValueError("give min and max, or against with its margin, in rules of their own")
        if self.against is None and self.model_fields_set & {"margin", "confidence"}:
            raise ValueError("margin and confidence belong to a rule with `against: live`")
        if self.slice is not None and self.metric in ("agreement", *MEASURED, "ndcg", "recall"):
            raise ValueError(f"{self.metric} is not measured by slice")
        if self.label is not None and self.metric in ("agreement", *MEASURED):
            raise ValueError(f"{self.metric} is not measured by label")
        if self.against is not None and self.metric in ("agreement", "parity", "column_auc", "repeated_rows"):
            raise ValueError(f"{self.metric} is not compared: the live model has none")
        if self.metric in _WANTED_MAX and self.max is None:
            raise ValueError(f"{self.metric} needs a max, such as {_WANTED_MAX[self.metric]}")
        return self
