"""How a model is trained and on which devices: the parts of the config that the trainer works by."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from models.config import OptimizersSpec

__all__ = [
    "ClusterSpec",
    "ConstantRate",
    "CosineRate",
    "EarlyStoppingSpec",
    "PlateauRate",
    "RateSchedule",
    "StepRate",
    "StrategyKind",
    "StrategySpec",
    "TensorBoardSpec",
    "TrainSpec",
    "WatchdogSpec",
]

_STRICT = ConfigDict(frozen=True, extra="forbid")


class ConstantRate(BaseModel):
    """The learning rate of each optimizer, unchanged."""

    model_config = _STRICT

    kind: Literal["constant"] = "constant"


class CosineRate(BaseModel):
    """Falls as half a cosine from 1 to `final_scale` times the rate, over all steps of the run."""

    model_config = _STRICT

    kind: Literal["cosine"] = "cosine"
    final_scale: float = Field(0.0, ge=0, le=1)


class StepRate(BaseModel):
    """Multiplied by `factor` each time another `every_epochs` epochs are done."""

    model_config = _STRICT

    kind: Literal["step"] = "step"
    every_epochs: float = Field(1.0, gt=0)
    factor: float = Field(0.1, gt=0, le=1)


class PlateauRate(BaseModel):
    """Divided each time the figure of `early_stopping.metric` on the valid split has stopped getting better."""

    model_config = _STRICT

    kind: Literal["plateau"] = "plateau"
    divide_by: float = Field(10.0, gt=1)
    patience: int = Field(1, ge=1, description="Evaluations without a better figure before the rate falls.")
    min_delta: float = Field(0.0, ge=0, description="A figure is better only by more than this.")
    min_scale: float = Field(0.0, ge=0, le=1, description="The rate never falls below this share of it.")


RateSchedule = Annotated[ConstantRate | CosineRate | StepRate | PlateauRate, Field(discriminator="kind")]


class EarlyStoppingSpec(BaseModel):
    """By which figure of the valid split the best weights are chosen, and when to give up on better ones."""

    model_config = _STRICT

    metric: Literal["auc", "log_loss"] = Field("auc", description="Of the valid split.")
    label: str | None = Field(None, description="Whose figure counts; null: the mean over labels.")
    patience: int | None = Field(
        2, ge=1, description="Stop after this many evaluations without a better one; null: never stop."
    )
    min_delta: float = Field(0.0, ge=0, description="An evaluation is better only by more than this.")

    @property
    def figure(self) -> str:
        """The figure that counts, as `split_scores.split_metrics` names it."""
        return self.metric if self.label is None else f"{self.metric}/{self.label}"


class TensorBoardSpec(BaseModel):
    """What is written for TensorBoard under the run's folder."""

    model_config = _STRICT

    enabled: bool = True
    every_steps: int = Field(50, ge=1, description="Steps between points of the training curves.")
    histograms: bool = Field(
        False, description="Histograms of the dense weights and of the lengths of embedding rows at each evaluation."
    )


class TrainSpec(BaseModel):
    """The training run."""

    model_config = _STRICT

    batch_size: int = Field(4096, ge=1, description="Rows of the global batch: of all replicas together.")
    epochs: int = Field(1, ge=1)
    max_steps: int | None = Field(None, ge=1, description="Ends the run after this many steps, whatever `epochs`.")
    optimizers: OptimizersSpec = OptimizersSpec()
    learning_rate: RateSchedule = Field(ConstantRate(), description="Scales the rate of every optimizer alike.")
    warmup_steps: int = Field(0, ge=0, description="Steps over which the rate rises linearly to its full value.")
    learning_rate_scaling: Literal["none", "linear", "sqrt", "cowclip"] = Field(
        "none",
        description="How the optimizers' settings follow the batch, s = batch_size / reference_batch_size. linear: "
        "rates times s; sqrt: rates times the root of s; cowclip: of tables and wide l2 times s, of dense the rate "
        "times the root of s.",
    )
    reference_batch_size: int | None = Field(
        None, ge=1, description="The batch size that the optimizers' settings are meant for."
    )
    label_weights: dict[str, Annotated[float, Field(gt=0)]] = Field(
        {}, description="Of several labels: how much each counts in the loss; 1 by default."
    )
    accumulate_steps: int = Field(
        1,
        ge=1,
        description="Parts that each batch is worked off in, one after the other; their gradients are applied at "
        "once. Saves memory; batch norm takes the moments of each part.",
    )
    shuffle_rows: int = Field(
        65536,
        ge=0,
        description="Rows shuffled in memory, over all streams together; 0: the order of shards and streams.",
    )
    steps_per_execution: int = Field(16, ge=1, description="Steps that run without returning to Python.")
    evaluate_every_epochs: float = Field(1.0, gt=0, description="Epochs between evaluations; 0.5 is twice an epoch.")
    evaluate_batch_size: int = Field(4096, ge=1, description="Rows scored at a time; changes no figure.")
    early_stopping: EarlyStoppingSpec = EarlyStoppingSpec()
    checkpoint_every_steps: int = Field(1000, ge=1, description="Steps between checkpoints to resume from.")
    keep_checkpoints: int = Field(2, ge=1, description="Checkpoints to resume from that are kept, besides the best.")
    tensorboard: TensorBoardSpec = TensorBoardSpec()
    profile: str | None = Field(
        None, pattern=r"^[1-9]\d*-[1-9]\d*$", description="First and last step of a profiler trace, such as 100-120."
    )

    @property
    def profiled_steps(self) -> range | None:
        """The steps of `profile`, counted from 1."""
        if self.profile is None:
            return None
        first, last = (int(step) for step in self.profile.split("-"))
        return range(first, last + 1)

    @model_validator(mode="after")
    def _fits_together(self) -> TrainSpec:
        if self.profiled_steps is not None and not self.profiled_steps:
            raise ValueError(f"profile: the last step comes before the first in {self.profile!r}")
        if self.learning_rate_scaling != "none" and self.reference_batch_size is None:
            raise ValueError(f"learning_rate_scaling: {self.learning_rate_scaling} needs reference_batch_size")
        if self.accumulate_steps > self.batch_size:
            raise ValueError(f"accumulate_steps must be at most batch_size, {self.batch_size}")
        return self


class ClusterSpec(BaseModel):
    """The processes that train together, where TF_CONFIG does not tell."""

    model_config = _STRICT

    workers: tuple[str, ...] = Field(min_length=1, description="HOST:PORT of each worker, in order.")
    servers: tuple[str, ...] = Field((), description="HOST:PORT of each parameter server.")
    coordinator: str | None = Field(None, description="HOST:PORT of the process that leads parameter servers.")
    task: str = Field(
        "",
        pattern=r"^((worker|ps|chief):\d+)?$",
        description="What this process is, such as worker:1; to be overridden in each.",
    )

    @field_validator("workers", "servers")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [address for address in value if not _ADDRESS.match(address)]
        if wrong:
            raise ValueError(f"an address is HOST:PORT, not {wrong[0]!r}")
        if len(set(value)) < len(value):
            raise ValueError("an address is given twice")
        return value


class WatchdogSpec(BaseModel):
    """How processes that train together look after each other, by files beside the run's folder."""

    model_config = _STRICT

    interval_s: float = Field(1.0, gt=0, description="Seconds between signs of life.")
    dead_after_s: float = Field(30.0, gt=0, description="A process without a sign for so long has died; the job stops.")
    stalled_after_s: float = Field(
        120.0, gt=0, description="Without a step for so long, each process tells where all of them wait."
    )

    @model_validator(mode="after")
    def _in_order(self) -> WatchdogSpec:
        if self.dead_after_s < 3 * self.interval_s:
            raise ValueError("dead_after_s must be at least three times interval_s")
        return self


StrategyKind = Literal["one_device", "mirrored", "multi_worker_mirrored", "parameter_server", "central_storage", "tpu"]


class StrategySpec(BaseModel):
    """The devices that train, and how."""

    model_config = _STRICT

    kind: StrategyKind = Field(
        "one_device",
        description="mirrored: one replica on each device of this machine, in step; multi_worker_mirrored: on each "
        "device of several machines; parameter_server: workers on their own, weights on servers; central_storage: "
        "weights on one device, replicas on the others; tpu.",
    )
    devices: tuple[str, ...] = Field(
        (), description="Such as ['GPU:0', 'GPU:1']; by default the first or all GPUs, without any the CPU."
    )
    virtual_cpus: int | None = Field(
        None, ge=1, description="Splits the CPU into this many devices: replicas on a machine without GPUs."
    )
    cross_device_ops: Literal["auto", "nccl", "hierarchical_copy", "reduction_to_one_device"] = Field(
        "auto", description="How mirrored replicas add up; auto: TensorFlow's choice on GPUs, else one device."
    )
    communication: Literal["auto", "ring", "nccl"] = Field(
        "auto", description="How the workers of multi_worker_mirrored add up."
    )
    parameter_device: str = Field("CPU:0", description="Where central_storage keeps the weights.")
    min_shard_bytes: int = Field(
        1 << 18, ge=1, description="parameter_server: a table is cut into no smaller pieces than this."
    )
    tpu: str = Field("", description="Name or address of the TPU; empty: the one of this machine.")
    cluster: ClusterSpec | None = Field(None, description="By default what the environment's TF_CONFIG says.")
    watchdog: WatchdogSpec = WatchdogSpec()

    @model_validator(mode="after")
    def _fits_kind(self) -> StrategySpec:
        if self.kind == "one_device" and len(self.devices) > 1:
            raise ValueError(f"one_device takes one device, {len(self.devices)} are given; use kind: mirrored")
        for option, kinds in _OPTIONS_OF.items():
            if self.kind not in kinds and getattr(self, option) != type(self).model_fields[option].default:
                raise ValueError(f"{option} belongs to kind: {' or '.join(kinds)}")
        return self


_ADDRESS = re.compile(r"^[^\s:/]+:\d{1,5}$|^\[[0-9a-fA-F:]+\]:\d{1,5}$")
# Options that mean nothing to the other kinds.
_OPTIONS_OF: dict[str, tuple[str, ...]] = {
    "cross_device_ops": ("mirrored",),
    "communication": ("multi_worker_mirrored",),
    "parameter_device": ("central_storage",),
    "min_shard_bytes": ("parameter_server",),
    "tpu": ("tpu",),
    "cluster": ("multi_worker_mirrored", "parameter_server"),
}
