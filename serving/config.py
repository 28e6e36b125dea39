"""What a config says of how requests are merged."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["BatchingSpec"]


class BatchingSpec(BaseModel):
    """TF Serving's BatchingParameters: worth it for many requests of few rows, not for lists of 50 and more."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_batch_size: int = Field(512, ge=1, description="Rows of a batch, and of the largest request accepted.")
    batch_timeout_micros: int = Field(1000, ge=0, description="Longest wait for company.")
    max_enqueued_batches: int = Field(16, ge=1, description="Beyond it requests are refused as UNAVAILABLE.")
    num_batch_threads: int = Field(4, ge=1, description="Batches that run at once; as many as processors.")
