"""What a config says of export, the version store and serving."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from serving.config import BatchingSpec, RetentionSpec
from serving.features_spec import FeaturesSpec
from serving.monitor_spec import MonitorSpec
from serving.request_log_spec import RequestLogSpec

__all__ = ["ExportSpec", "RankSpec", "ServeSpec", "WarmupSpec"]

_STRICT = ConfigDict(frozen=True, extra="forbid")


class RankSpec(BaseModel):
    """The signature `rank`: a user and many candidates in one request."""

    model_config = _STRICT

    item_columns: tuple[str, ...] | None = Field(
        None,
        description="Columns that belong to candidates; left out: the item key, the columns of side tables joined by "
        "it, and point-in-time columns of either. All others are the user's. An empty list: no such signature.",
    )
    top_k: int = Field(100, ge=1, description="How many of the best candidates an answer names.")


class WarmupSpec(BaseModel):
    """Requests made of real rows that a server runs before a version takes traffic."""

    model_config = _STRICT

    batch_sizes: tuple[int, ...] = Field(
        (1, 32, 512), max_length=100, description="Rows, or candidates, of the requests; empty: no warm-up."
    )

    @field_validator("batch_sizes")
    @classmethod
    def _positive(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(not 1 <= size <= 100_000 for size in value) or len(set(value)) != len(value):
            raise ValueError("each batch size is given once, from 1 to 100000")
        return value


class ExportSpec(BaseModel):
    """What the SavedModel is called and where its versions live."""

    model_config = _STRICT

    model_name: str = Field("ranker", pattern=r"^[A-Za-z0-9_.-]+$")
    store: str = Field("", description="Folder of all served models; by default WORK_DIR/store.")
    promote: Literal["stable", "canary", "none"] = Field(
        "stable", description="The label that a version gets when it has passed the gate and is published."
    )
    retention: RetentionSpec | None = Field(
        RetentionSpec(), description="Which versions are removed after a publication; null removes none."
    )
    tables: Literal["float32", "float16"] = Field(
        "float32", description="How rows of embedding tables are stored; they are computed with as float32."
    )
    rank: RankSpec = RankSpec()
    warmup: WarmupSpec = WarmupSpec()


class ServeSpec(BaseModel):
    """Where the model server listens."""

    model_config = _STRICT

    host: str = "127.0.0.1"
    port: int = Field(8500, ge=0, le=65535)
    rest_port: int = Field(8501, ge=0, le=65535)
    docker: bool = Field(False, description="Run the tensorflow/serving image instead of a local server.")
    threads: int = Field(0, ge=0, description="Of TensorFlow, inside an op and between ops; 0 lets it decide.")
    poll_s: int = Field(2, ge=1, description="How often models and labels are looked up again, in seconds.")
    servers: tuple[str, ...] = Field(
        (),
        description="Servers to wait for when labels move, each host:port of REST or grpc://host:port; "
        "left out, the one of this config.",
    )
    load_timeout_s: float = Field(300.0, gt=0, description="How long a server may take to load a version.")
    memory_check: Literal["refuse", "warn"] = Field(
        "refuse", description="When a version would not fit beside what a server on this machine has loaded."
    )
    batching: BatchingSpec | None = Field(None, description="How requests are merged; left out, they are not.")
    features: FeaturesSpec = FeaturesSpec()
    request_log: RequestLogSpec | None = Field(None, description="Which requests `predict` keeps; null keeps none.")
    monitor: MonitorSpec = MonitorSpec()
