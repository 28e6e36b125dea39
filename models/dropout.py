"""Dropout whose mask is a function of (seed, layer, step, row of the global batch).

So R replicas drop what one replica would, and a resumed run what an uninterrupted one would.
"""

from __future__ import annotations

import hashlib

import numpy as np
import tensorflow as tf

from models.mode import Training

__all__ = ["dropout"]

_PHILOX = 1  # the counter-based generator of Salmon et al. (2011): its counter can start at any row
_PER_BLOCK = 8  # one step of the counter gives four 32-bit words, that is eight 16-bit numbers


def dropout(x: tf.Tensor, *, rate: float, seed: int, layer: str, training: Training) -> tf.Tensor:
    """Returns `x` float [B, U] with a share `rate` of its elements zero and the others divided by 1 - rate.

    The rate is kept to 1/65536.
    """
    batch, width = tf.shape(x, tf.int64)[0], int(x.shape[1])
    blocks = -(-width // _PER_BLOCK)
    digest = hashlib.sha256(f"{seed}/dropout/{layer}".encode()).digest()
    key = tf.constant(np.frombuffer(digest[:8], "<u8"), tf.uint64)
    first_row = training.first_row
    if first_row is None:
        first_row = tf.cast(training.replicas.index(), tf.int64) * batch
    counter = tf.cast(tf.stack([first_row * blocks, training.step]), tf.uint64)
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.stack([batch, blocks * _PER_BLOCK // 2]), key=key, counter=counter, alg=_PHILOX, dtype=tf.uint32
    )
    numbers = tf.reshape(tf.bitcast(words, tf.uint16), [batch, blocks * _PER_BLOCK])[:, :width]
    threshold = round(rate * 65536)
    kept = tf.cast(numbers >= tf.constant(threshold, tf.uint16), x.dtype)
    return x * kept * tf.constant(65536.0 / (65536 - threshold), x.dtype)
