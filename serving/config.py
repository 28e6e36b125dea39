"""What a config says of how requests are merged, and which versions are kept."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["BatchingSpec", "RetentionSpec"]


class BatchingSpec(BaseModel):
    """TF Serving's BatchingParameters: worth it for many requests of few rows, not for lists of 50 and more."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_batch_size: int = Field(512, ge=1, description="Rows of a batch, and of the largest request accepted.")
    batch_timeout_micros: int = Field(1000, ge=0, description="Longest wait for company.")
    max_enqueued_batches: int = Field(16, ge=1, description="Beyond it requests are refused as UNAVAILABLE.")
    num_batch_threads: int = Field(4, ge=1, description="Batches that run at once; as many as processors.")


class RetentionSpec(BaseModel):
    """Which versions are removed: those not among the newest, and old as well; never one in use, labelled or pinned."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keep_last: int = Field(5, ge=1, description="So many of the newest versions stay.")
    keep_days: float = Field(7.0, ge=0, description="Younger versions stay; 0 keeps none for its age.")
