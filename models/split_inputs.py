"""What a network is given where many rows share the fields of a user. Letters: `Q` users, `N` rows of each, `W` width.

Whatever is linear in the fields, as sums, factorisation machines and first dense layers are, is the user's part, made
once, plus the candidate's.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from models.mode import Inputs

__all__ = ["Side", "SplitInputs"]


@dataclasses.dataclass(frozen=True)
class Side:
    """The inputs of one side, and where they are among those of the whole network.

    Attributes:
        inputs: the fields and numbers of this side.
        deep: int [fields D + numbers], their places in `wide_deep.deep_input`.
        dense: int [numbers], their places among all numbers.
    """

    inputs: Inputs
    deep: NDArray[np.int64]
    dense: NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class SplitInputs:
    """The user's side, Q rows, and the candidates', Q N rows."""

    user: Side
    candidate: Side
    num_requests: tf.Tensor
    num_candidates: tf.Tensor

    @property
    def sides(self) -> tuple[Side, Side]:
        """The user's, then the candidate's."""
        return self.user, self.candidate

    def added(self, user: tf.Tensor, candidate: tf.Tensor) -> tf.Tensor:
        """Returns [Q N, W]: the user's [Q, W] added to each of its candidates' [Q N, W]."""
        width = int(candidate.shape[1])
        grid = tf.reshape(candidate, [self.num_requests, self.num_candidates, width])
        return tf.reshape(grid + user[:, None, :], [self.num_requests * self.num_candidates, width])
