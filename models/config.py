"""How a model is built and optimised: the parts of the config that `models` works by."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, field_validator, model_validator
from pydantic_core import PydanticCustomError

__all__ = [
    "NETWORK_KINDS",
    "TABLE_SHARD_BYTES",
    "AttentionSpec",
    "ClippingSpec",
    "CowClipSpec",
    "EmbeddingsSpec",
    "ModelSpec",
    "OptimizerSpec",
    "OptimizersSpec",
    "PositionSpec",
    "TableDtype",
    "TablePlacement",
]

# The largest variable that a table is cut into for inference.
TABLE_SHARD_BYTES = 256 << 20

TableDtype = Literal["float32", "float16"]

NETWORK_KINDS = ("deepfm", "wide_deep", "dcn", "dlrm")
_OWN_NETWORK = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"

_STRICT = ConfigDict(frozen=True, extra="forbid")


def _known_kind(kind: str) -> str:
    if kind not in NETWORK_KINDS and not re.match(_OWN_NETWORK, kind):
        expected = ", ".join(map(repr, (*NETWORK_KINDS, "package.module:Class")))
        raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})
    return kind


_KIND_SCHEMA = {"anyOf": [{"enum": list(NETWORK_KINDS)}, {"type": "string", "pattern": _OWN_NETWORK}]}
NetworkKind = Annotated[str, AfterValidator(_known_kind), WithJsonSchema(_KIND_SCHEMA)]

TablePlacement = Literal["auto", "mirrored", "sharded", "table_wise", "partitioned"]


class EmbeddingsSpec(BaseModel):
    """Which replica holds which rows of the embedding tables, and how looked-up rows travel.

    Nothing here changes an answer, `exchange_dtype: bfloat16` excepted.
    """

    model_config = _STRICT

    placement: TablePlacement = Field(
        "auto",
        description="mirrored: a copy on each replica; sharded: each row on one replica; table_wise: each table on "
        "one replica; partitioned: over parameter servers; auto: partitioned with parameter servers, else small "
        "tables mirrored and large ones sharded.",
    )
    tables: dict[str, TablePlacement] = Field({}, description="Placement of single tables, by name.")
    mirrored_below_bytes: int = Field(
        8 << 20, ge=0, description="auto: a table whose weights and slots take less is mirrored."
    )
    budget_bytes: int | None = Field(
        None, ge=1, description="Most bytes that tables and slots may take on a replica; null: no limit."
    )
    exchange: Literal["auto", "all_gather", "all_to_all"] = Field(
        "auto",
        description="all_to_all: rows travel to those who asked for them, in messages as long as needed; all_gather: "
        "every replica hears everything, in messages of one size, by the strategy's own collectives; auto: all_to_all.",
    )
    exchange_dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Of rows and gradients that travel; float32 leaves them as they are."
    )
    dedupe: Literal["auto", "on", "off"] = Field(
        "auto", description="Each row travels once a step and replica; auto: on for all_to_all, which alone can."
    )


class AttentionSpec(BaseModel):
    """Target attention over histories, with any network; see `models.attention`."""

    model_config = _STRICT

    targets: dict[str, str] = Field(
        {},
        description="For each history, a feature that is a list of ids: the id feature it is held against, which "
        "shares its table.",
    )
    hidden_units: tuple[int, ...] = Field((36,), description="Width of each layer of an activation unit.")


class PositionSpec(BaseModel):
    """How a position is trained with and taken out when serving; see `models.position`."""

    model_config = _STRICT

    feature: str = Field(description="A feature of `kind: integer` that is where the impression was shown.")
    kind: Literal["fixed", "tower"] = Field(
        "fixed",
        description="fixed: every row that is scored has the position `value`; tower: a logit of its own, added in "
        "training only.",
    )
    value: int = Field(1, ge=0, description="Of fixed.")
    hidden_units: tuple[int, ...] = Field((8,), min_length=1, description="Of tower.")


class ModelSpec(BaseModel):
    """The network and its embedding tables."""

    model_config = _STRICT

    kind: NetworkKind = Field("deepfm", description="Or a network of your own, package.module:Class.")
    embedding_dim: int = Field(16, ge=1)
    hidden_units: tuple[int, ...] = Field((400, 400, 400), description="Width of each dense layer.")
    dropout: float = Field(0.0, ge=0, lt=1, description="After each hidden layer.")
    batch_norm: bool = Field(False, description="Synchronised over replicas; padded rows do not count.")
    cross_layers: int = Field(3, ge=1, description="Of dcn only.")
    bottom_units: tuple[int, ...] = Field(
        (64,),
        description="Of dlrm only: widths of the layers that make of the numbers one more vector, but for the last.",
    )
    params: dict[str, Any] = Field({}, description="Of a network of one's own only, which reads them.")
    embedding_init_scale: float = Field(0.01, gt=0, description="Rows start uniform in [-scale, scale].")
    attention: AttentionSpec = AttentionSpec()
    position: PositionSpec | None = Field(None, description="Null: a position is a feature like others.")
    embeddings: EmbeddingsSpec = EmbeddingsSpec()
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16", "float64"] = Field(
        "float32",
        description="Of training steps; evaluation and export are float32 (float64 is for tests). mixed_float16 "
        "scales the loss, by as much as its gradients bear.",
    )
    jit_compile: bool = Field(False, description="Compile the dense part of training steps by XLA.")

    @model_validator(mode="after")
    def _has_a_reader(self) -> ModelSpec:
        if self.params and self.kind in NETWORK_KINDS:
            raise ValueError(f"params are for a network of your own, kind: package.module:Class, not for {self.kind}")
        return self


class CowClipSpec(BaseModel):
    """Clips the gradient of each row looked up to the length count * max(r |w|, zeta); Zheng et al. (2022)."""

    model_config = _STRICT

    r: float = Field(1.0, gt=0, description="Of the row's own length.")
    zeta: float = Field(1e-5, ge=0, description="Lower bound, for rows near 0.")


class ClippingSpec(BaseModel):
    """Limits of gradients: each number first, then the length of all together; before regularisation."""

    model_config = _STRICT

    value: float | None = Field(None, gt=0, description="Each number is clipped to [-value, value].")
    global_norm: float | None = Field(None, gt=0, description="All are scaled down together to this length.")
    include_tables: bool = Field(False, description="Gradients of table rows too, not of dense weights alone.")


class OptimizerSpec(BaseModel):
    """One optimizer for one group of weights."""

    model_config = _STRICT

    kind: Literal["sgd", "adagrad", "adam", "ftrl"]
    learning_rate: float = Field(gt=0)
    l1: float = Field(0.0, ge=0)
    l2: float = Field(0.0, ge=0, description="Adds l2 * w to the gradient; of tables, on the rows looked up only.")
    initial_accumulator: float = Field(0.1, ge=0, description="Of adagrad and ftrl.")
    beta_1: float = Field(0.9, ge=0, lt=1)
    beta_2: float = Field(0.999, ge=0, lt=1)
    epsilon: float = Field(1e-7, gt=0)
    cowclip: CowClipSpec | None = Field(None, description="Of tables and wide only.")


class OptimizersSpec(BaseModel):
    """The optimizer of each group: embedding tables, first-order (wide) weights, dense layers."""

    model_config = _STRICT

    tables: OptimizerSpec = OptimizerSpec(kind="adagrad", learning_rate=0.05)
    wide: OptimizerSpec | None = Field(
        None, description="By default FTRL at 0.05 for wide_deep, else the tables' optimizer."
    )
    dense: OptimizerSpec = OptimizerSpec(kind="adam", learning_rate=0.001)
    clipping: ClippingSpec = ClippingSpec()

    @field_validator("dense")
    @classmethod
    def _has_no_rows(cls, value: OptimizerSpec) -> OptimizerSpec:
        if value.cowclip is not None:
            raise ValueError("cowclip is for rows of tables; of dense weights use train.optimizers.clipping")
        return value
