"""What a config says of the log of requests."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["RequestLogSpec"]


class RequestLogSpec(BaseModel):
    """Which requests a client keeps, and where."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dir: str = Field(description="Folder of the log; its finished files are Parquet.")
    sample: float = Field(1.0, gt=0, le=1, description="Share of the requests that is kept, drawn by request id.")
    seed: int = Field(0, ge=0, description="Of the draw: clients with one seed keep the same requests.")
    max_file_mb: float = Field(64.0, gt=0, description="A file is finished when it holds so much.")
    max_file_s: float = Field(300.0, gt=0, description="A file is finished when it is this old.")
    max_queued: int = Field(1000, ge=1, description="Requests waiting to be written; beyond it they are dropped.")
