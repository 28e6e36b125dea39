"""The state arrays of each optimizer, each as large as the weights: known without TensorFlow, for plans."""

from __future__ import annotations

__all__ = ["SLOTS"]

SLOTS: dict[str, tuple[str, ...]] = {
    "sgd": (),
    "adagrad": ("accumulator",),
    "adam": ("momentum", "variance"),
    "ftrl": ("accumulator", "linear"),
}
