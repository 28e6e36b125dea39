"""What a config says of export, the version store and serving."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from serving.config import BatchingSpec, RetentionSpec
from serving.features_spec import FeaturesSpec

__all__ = ["ExportSpec", "ServeSpec"]

_STRICT = ConfigDict(frozen=True, extra="forbid")


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
