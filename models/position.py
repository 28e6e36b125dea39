"""Where an impression was shown, which decides whether it is looked at: trained with, and taken out when serving.

`fixed`: a feature like others in training; in inference every row has one and the same position.
`tower`: a shallow tower of its own makes a logit of it, added in training and left out in inference; Zhao et al.
(2019), "Recommending What Video to Watch Next", section 4.3.

Whatever scores for inference does so: evaluation, export and serving alike. Letters: `B` batch, `P` positions of a
row's ids, `F` fields, `D` width, `K` labels.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from models.config import ModelSpec, PositionSpec
from models.layers import MLP, Dense
from models.mode import Inputs, Mode
from models.weights import WeightMaker
from preprocessing.errors import ConfigError
from preprocessing.schema import DatasetSchema
from preprocessing.vocabulary import INTEGER_OFFSET

__all__ = ["FixedPosition", "PositionTower", "field_place"]


def field_place(schema: DatasetSchema, spec: PositionSpec) -> int:
    """Returns the place of the position among the id fields.

    Raises:
        ConfigError: if there is no such feature.
    """
    names = [field.name for field in schema.id_fields]
    if spec.feature not in names:
        raise ConfigError(f"model.position.feature: no feature {spec.feature!r} with one id; there are: {names}")
    return names.index(spec.feature)


@dataclasses.dataclass(frozen=True)
class FixedPosition:
    """The feature and the id that it has in inference."""

    feature: str
    id: int

    @classmethod
    def of(cls, schema: DatasetSchema, spec: PositionSpec) -> FixedPosition:
        """Returns the one of `kind: fixed`.

        Raises:
            ConfigError: if the feature does not exist, or has no such value.
        """
        place = field_place(schema, spec)
        (num_rows,) = (table.num_rows for table in schema.tables if table.name == schema.id_fields[place].table)
        if not INTEGER_OFFSET <= spec.value + INTEGER_OFFSET < num_rows:
            last = num_rows - INTEGER_OFFSET - 1
            raise ConfigError(f"model.position.value: {spec.feature!r} has values 0 to {last}, not {spec.value}")
        return cls(spec.feature, spec.value + INTEGER_OFFSET)

    def served(self, ids: tf.Tensor, schema: DatasetSchema) -> tf.Tensor:
        """Returns ids [B, P] with the one position; `schema` says where it is, if it is among them."""
        names = [field.name for field in schema.id_fields]
        if self.feature not in names:
            return ids
        place = names.index(self.feature)
        one = tf.fill([tf.shape(ids)[0], 1], tf.constant(self.id, ids.dtype))
        return tf.concat([ids[:, :place], one, ids[:, place + 1 :]], axis=1)


class PositionTower:
    """The shallow tower of `kind: tower`."""

    def __init__(self, make: WeightMaker, spec: ModelSpec, position: PositionSpec, *, schema: DatasetSchema) -> None:
        """Raises ConfigError if the feature does not exist."""
        self._place = field_place(schema, position)
        self._mlp = MLP(make, spec, fan_in=spec.embedding_dim, name="position", units=position.hidden_units)
        self._head = Dense(make, "position/head", fan_in=self._mlp.width, fan_out=len(schema.labels))

    def logits(self, inputs: Inputs, mode: Mode) -> tf.Tensor:
        """Returns [B, K] from the position alone."""
        return self._head(self._mlp(inputs.embedding[:, self._place], mode))

    def without(self, inputs: Inputs) -> Inputs:
        """Returns the inputs of the network proper: [B, F - 1, D] and [B, F - 1]."""

        def rest(fields: tf.Tensor) -> tf.Tensor:
            return tf.concat([fields[:, : self._place], fields[:, self._place + 1 :]], axis=1)

        first_order = None if inputs.first_order is None else rest(inputs.first_order)
        return Inputs(rest(inputs.embedding), first_order, inputs.dense)
