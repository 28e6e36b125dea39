"""Several requests as one: their inputs joined, padded, and the outputs cut apart again. Plain functions on arrays."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.server.status import Code, StatusError

__all__ = ["merge", "num_rows_of", "padded_size", "split"]

Arrays = Sequence[NDArray[Any]]


def num_rows_of(inputs: Arrays) -> int:
    """Returns the first dimension that all inputs of a request share.

    Raises:
        StatusError: INVALID_ARGUMENT, if they do not, or one is a scalar.
    """
    if not all(array.ndim for array in inputs):
        raise StatusError(Code.INVALID_ARGUMENT, "Batching Run() input tensors must have at least one dimension")
    sizes = {array.shape[0] for array in inputs}
    if len(sizes) != 1:
        text = f"Batching Run() input tensors must have equal 0th-dimension size, got {sorted(sizes)}"
        raise StatusError(Code.INVALID_ARGUMENT, text)
    return sizes.pop()


def padded_size(num_rows: int, allowed_sizes: Sequence[int]) -> int:
    """Returns the smallest allowed size that holds `num_rows`; `num_rows` itself if there is none."""
    position = bisect.bisect_left(allowed_sizes, num_rows)
    return allowed_sizes[position] if position < len(allowed_sizes) else num_rows


def merge(tasks: Sequence[Arrays], *, size: int, pad_ragged: bool) -> list[NDArray[Any]]:
    """Returns the inputs of all tasks one after the other, filled up to `size` with copies of the first row.

    Args:
        tasks: the inputs of each, in the same order.
        size: rows wanted, at least those of all tasks.
        pad_ragged: make the other dimensions equal, with copies of a tensor's own first element.

    Raises:
        StatusError: FAILED_PRECONDITION, if the other dimensions differ and may not be padded.
    """
    return [_merge_one(parts, size, pad_ragged) for parts in zip(*tasks, strict=True)]


def _merge_one(parts: Arrays, size: int, pad_ragged: bool) -> NDArray[Any]:
    if len({part.shape[1:] for part in parts}) > 1:
        if not pad_ragged or len({part.ndim for part in parts}) > 1:
            text = (
                "Tensors with the same name from different tasks have different shapes and padding is turned off."
                " Set pad_variable_length_inputs to true, or ensure that all tensors with the same name have equal"
                " dimensions starting with the first dim."
            )
            raise StatusError(Code.FAILED_PRECONDITION, text)
        widest = np.max([part.shape[1:] for part in parts], axis=0).tolist()
        parts = [_pad(part, widest) for part in parts]
    num_missing = size - sum(part.shape[0] for part in parts)
    filled = next((part for part in parts if part.shape[0]), None)
    if num_missing and filled is not None:
        parts = [*parts, np.repeat(filled[:1], num_missing, axis=0)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _pad(array: NDArray[Any], widths: list[int]) -> NDArray[Any]:
    if not array.size:
        filler: Any = b"" if array.dtype == np.object_ else 0
    else:
        filler = array.flat[0]
    padded: NDArray[Any] = np.full([array.shape[0], *widths], filler, dtype=array.dtype)
    padded[tuple(slice(size) for size in array.shape)] = array
    return padded


def split(outputs: Arrays, sizes: Sequence[int], *, size: int) -> list[list[NDArray[Any]]]:
    """Returns the outputs of each task, of `sizes` rows, from those of a batch of `size` rows.

    Raises:
        StatusError: FAILED_PRECONDITION, if an output does not have a row for each row of the batch.
    """
    for output in outputs:
        if not output.ndim or output.shape[0] != size:
            text = "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the"
            raise StatusError(Code.FAILED_PRECONDITION, f"{text} input tensors: {list(output.shape)}, {size} rows")
    ends = np.cumsum(sizes).tolist()
    return [[output[end - count : end] for output in outputs] for count, end in zip(sizes, ends, strict=True)]
