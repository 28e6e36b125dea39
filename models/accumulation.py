"""A batch worked off in parts whose gradients add up to those of the whole: less memory for the dense layers.

Letters: `B` rows of a replica's slice, `P` positions, `D` width, `L` list positions, `N` dense inputs, `K` labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

__all__ = ["Gradients", "in_parts"]

# The loss share, and its gradients by looked-up rows of each group and by dense weights.
Gradients = tuple[tf.Tensor, dict[str, tf.Tensor], dict[str, tf.Tensor]]


def in_parts(
    compute: Callable[..., Gradients],
    rows: Mapping[str, tf.Tensor],
    *,
    num_parts: int,
    first_row: tf.Tensor,
    per_row: Mapping[str, tf.Tensor | None],
    whole: Mapping[str, tf.Tensor],
) -> Gradients:
    """Returns what `compute` gives for the whole slice, one part after the other.

    Rows of tables were looked up for all parts together and change with none: their gradients are lined up, those
    of dense weights added. Each part's loss is a share of the whole batch's, so nothing is divided.

    Args:
        compute: gives the gradients of a part.
        rows: float [B, P, D] of each group.
        num_parts: how many; parts differ by at most one row.
        first_row: int64 scalar, number of the slice's first row in the global batch.
        per_row: arguments with a row for each of the slice.
        whole: arguments that every part is given as they are.
    """
    size = tf.shape(next(iter(rows.values())), tf.int64)[0]
    loss: tf.Tensor | None = None
    of_rows: dict[str, list[tf.Tensor]] = {group: [] for group in rows}
    of_weights: dict[str, tf.Tensor] = {}
    for part in range(num_parts):
        cut = slice(size * part // num_parts, size * (part + 1) // num_parts)
        before: list[tf.Tensor] = (
            [] if loss is None else [loss, *of_weights.values()]
        )  # else all parts would be held at once
        with tf.control_dependencies(before):
            some = {name: None if value is None else value[cut] for name, value in per_row.items()}
            share, by_rows, by_weights = compute(
                {group: values[cut] for group, values in rows.items()}, first_row=first_row + cut.start, **some, **whole
            )
        loss = share if loss is None else loss + share
        of_weights = {name: of_weights[name] + g if of_weights else g for name, g in by_weights.items()}
        for group, gradients in by_rows.items():
            of_rows[group].append(gradients)
    return loss, {group: tf.concat(parts, axis=0) for group, parts in of_rows.items()}, of_weights
