"""What a config says of how far requests may be from the training data."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["MonitorSpec"]


class MonitorSpec(BaseModel):
    """Limits of `rankmill monitor`; null sets none. What passes one ends the command with exit code 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_psi: float | None = Field(None, gt=0, description="Of any column, beyond what chance alone makes; 0.2 is much.")
    max_score_psi: float | None = Field(None, gt=0, description="Of any score, likewise.")
    max_missing_increase: float | None = Field(None, ge=0, le=1, description="Of the share of missing values.")
    max_oov_share: float | None = Field(None, ge=0, le=1, description="Of the values of a column with a vocabulary.")
    min_rows: int = Field(200, ge=1, description="A log of fewer rows says nothing: the command fails.")
