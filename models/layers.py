"""Dense layers. Letters: `B` batch, `U` width of a layer."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from models.batch_norm import BatchNorm
from models.config import ModelSpec
from models.dropout import dropout
from models.mode import Mode
from models.split_inputs import SplitInputs
from models.weights import WeightMaker

__all__ = ["MLP", "Dense"]


class Dense:
    """x W + b."""

    def __init__(self, make: WeightMaker, name: str, *, fan_in: int, fan_out: int) -> None:
        self._kernel = make.glorot(f"{name}/kernel", fan_in=fan_in, fan_out=fan_out)
        self._bias = make.constant(f"{name}/bias", (fan_out,))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Returns [B, fan_out] in the dtype of `x` [B, fan_in]."""
        return tf.nn.bias_add(tf.matmul(x, tf.cast(self._kernel, x.dtype)), tf.cast(self._bias, x.dtype))

    def of_sides(self, split: SplitInputs, user: tf.Tensor, candidate: tf.Tensor) -> tf.Tensor:
        """Returns [Q N, fan_out] of the user's numbers [Q, *] and the candidates' [Q N, *], by their rows of W."""
        parts = [
            tf.matmul(x, tf.gather(self._kernel, side.deep))
            for side, x in zip(split.sides, (user, candidate), strict=True)
        ]
        # The bias goes with the candidates, who have fields: the fused kernel of a product over none drops it.
        return split.added(parts[0], tf.nn.bias_add(parts[1], self._bias))


class MLP:
    """Hidden layers of dense, batch norm if asked, ReLU and dropout; `spec.hidden_units` wide unless told."""

    def __init__(
        self, make: WeightMaker, spec: ModelSpec, *, fan_in: int, name: str = "mlp", units: Sequence[int] | None = None
    ) -> None:
        self._name = name
        self._rate = spec.dropout
        self._seed = make.seed
        units = spec.hidden_units if units is None else units
        widths: Sequence[int] = (fan_in, *units)
        self._layers = [Dense(make, f"{name}/{i}", fan_in=widths[i], fan_out=widths[i + 1]) for i in range(len(units))]
        self._norms = [
            BatchNorm(make, f"{name}/{i}/norm", width=width) if spec.batch_norm else None
            for i, width in enumerate(units)
        ]
        self.width = widths[-1]

    def __call__(self, x: tf.Tensor, mode: Mode) -> tf.Tensor:
        """Returns [B, U of the last layer] in the dtype of `x`; the layers compute in `mode.compute_dtype`."""
        return tf.cast(self._after(self._layers[0](tf.cast(x, mode.compute_dtype)), mode), x.dtype)

    def of_sides(self, split: SplitInputs, user: tf.Tensor, candidate: tf.Tensor, mode: Mode) -> tf.Tensor:
        """Returns [Q N, U of the last layer], for inference; see `Dense.of_sides`."""
        return self._after(self._layers[0].of_sides(split, user, candidate), mode)

    def _after(self, first: tf.Tensor, mode: Mode) -> tf.Tensor:
        """Returns the last layer, given what the first dense layer gave before its norm."""
        hidden = first
        for i, (layer, norm) in enumerate(zip(self._layers, self._norms, strict=True)):
            hidden = layer(hidden) if i else hidden
            hidden = tf.nn.relu(hidden if norm is None else norm(hidden, mode))
            if self._rate and mode.training is not None:
                hidden = dropout(
                    hidden, rate=self._rate, seed=self._seed, layer=f"{self._name}/{i}", training=mode.training
                )
        return hidden
