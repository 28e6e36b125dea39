"""Parts of a split that are judged by themselves: by a column's value, or by how much training saw of it.

Shapes: N rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.evaluate_spec import SliceSpec
from preprocessing.errors import ConfigError

__all__ = ["activity_slices", "value_slices"]

Mask = npt.NDArray[np.bool_]
_NUM_PARTS = 4


def value_slices(spec: SliceSpec, values: pa.ChunkedArray) -> Iterator[tuple[str, Mask]]:
    """Yields name and rows of each slice by value: the most frequent values, the rest, and the missing ones.

    Numbers with a fraction are cut at their quartiles instead.

    Raises:
        ConfigError: if the column holds lists.
    """
    whole = values.combine_chunks()
    if pa.types.is_list(whole.type) or pa.types.is_large_list(whole.type):
        raise ConfigError(f"evaluate.slices: column {spec.column!r} holds lists; a slice needs one value a row")
    if pa.types.is_floating(whole.type):
        yield from _quartiles(spec.column, whole)
        return
    encoded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    codes = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    counts = np.bincount(codes[codes >= 0], minlength=len(encoded.dictionary))
    texts = [_text(value) for value in encoded.dictionary.to_pylist()]
    ranked = sorted(np.flatnonzero(counts), key=lambda code: (-counts[code], texts[code]))
    for code in ranked[: spec.top]:
        yield f"{spec.column}={texts[code]}", codes == code
    rest = np.isin(codes, ranked[spec.top :])
    if rest.any():
        yield f"{spec.column}: others", rest
    if (codes < 0).any():
        yield f"{spec.column}: missing", codes < 0


def _quartiles(column: str, values: pa.Array) -> Iterator[tuple[str, Mask]]:
    numbers = values.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
    known = np.isfinite(numbers)
    if known.any():
        edges = np.unique(np.quantile(numbers[known], np.linspace(0, 1, _NUM_PARTS + 1)))
        places = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, max(edges.size - 2, 0))
        for part in range(max(edges.size - 1, 1)):
            high = edges[min(part + 1, edges.size - 1)]
            yield f"{column}: {edges[part]:g} to {high:g}", known & (places == part)
    if not known.all():
        yield f"{column}: missing", ~known


def activity_slices(
    spec: SliceSpec, values: pa.ChunkedArray, *, seen: Sequence[pa.ChunkedArray]
) -> Iterator[tuple[str, Mask]]:
    """Yields name and rows of each slice by the number of training rows with the same value; 0 is new.

    Args:
        spec: gives the bounds between slices.
        values: of the split, [N].
        seen: of the training rows.
    """
    whole = pa.chunked_array([chunk for column in seen for chunk in column.chunks], type=values.type)
    counted = whole.value_counts()
    places = pc.index_in(values.combine_chunks(), value_set=counted.field("values"))
    known = places.is_valid().to_numpy(zero_copy_only=False)
    counts = np.zeros(len(values), np.int64)
    counts[known] = counted.field("counts").to_numpy()[places.drop_null().to_numpy()]
    counts[values.is_null().to_numpy()] = -1
    bounds = [0, *spec.bounds]
    for low, high in zip(bounds, [*bounds[1:], None], strict=True):
        name = _activity_name(low, high)
        rows = (counts >= low) & (counts < high if high is not None else True)
        if rows.any():
            yield f"{spec.column}: {name}", rows


def _activity_name(low: int, high: int | None) -> str:
    if low == 0 and high == 1:
        return "new"
    return f"{low} and more training rows" if high is None else f"{low} to {high - 1} training rows"


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
