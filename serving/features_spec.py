"""What a config says of online features: where the state of users and items is looked up at request time."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["FeaturesSpec"]


class FeaturesSpec(BaseModel):
    """How histories, counts and rates get into a request: from a snapshot on disk, or from Redis."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: Literal["embedded", "redis"] = Field(
        "embedded", description="embedded: a memory-mapped snapshot beside the model; redis: `rankmill features --push`"
    )
    url: str = Field("redis://127.0.0.1:6379/0", description="Of Redis: redis://, rediss:// or unix://.")
    prefix: str = Field("rankmill", min_length=1, description="What all keys in Redis begin with.")
    timeout_s: float = Field(0.2, gt=0, description="Of one call to Redis.")
    retries: int = Field(2, ge=0, description="Of a call to Redis that failed or timed out; look-ups change nothing.")
    poll_s: float = Field(10.0, ge=0, description="How often a newer snapshot on disk is looked for, in seconds.")
