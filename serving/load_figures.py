"""The figures of a load test: percentiles, rates, errors, and whether the client itself kept up."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.load_schedule import NOT_SENT, Samples
from serving.server.status import Code

__all__ = ["PERCENTILES", "LoadResult", "figures", "percentiles_ms"]

PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
LATE_MS = 5.0


@dataclasses.dataclass(frozen=True)
class LoadResult:
    """What a load test found.

    Attributes:
        offered_qps: requests due a second.
        achieved_qps: good answers a second, from the start to the last answer.
        num_due: requests due.
        num_ok: good answers.
        errors: number of the others by code; "NOT_SENT" for those that were never sent.
        latency_ms: of good answers, counted from when they were due: p50, ... p99.9, mean and max.
        service_ms: the same counted from when they were sent.
        lateness_ms: how late the client sent them.
        client_is_late: the client could not keep its own schedule: the figures say more of it than of the server.
        samples: what became of each request.
    """

    offered_qps: float
    achieved_qps: float
    num_due: int
    num_ok: int
    errors: dict[str, int]
    latency_ms: dict[str, float]
    service_ms: dict[str, float]
    lateness_ms: dict[str, float]
    client_is_late: bool
    samples: Samples = dataclasses.field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Returns the figures without the samples."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "samples"}


def percentiles_ms(seconds: NDArray[np.float64]) -> dict[str, float]:
    """Returns p50 to p99.9, the mean and the maximum in ms; a percentile is the smallest value not below its share."""
    if not len(seconds):
        return {}
    ordered = np.sort(seconds) * 1e3
    # 1,000 values are to give the 999th for p99.9: a product such as 999.0000000001 must not become 1,000.
    places = [max(math.ceil(share / 100 * len(ordered) - 1e-6), 1) - 1 for share in PERCENTILES]
    named = {f"p{share:g}": float(ordered[place]) for share, place in zip(PERCENTILES, places, strict=True)}
    return {**named, "mean": float(seconds.mean() * 1e3), "max": float(seconds.max() * 1e3)}


def figures(samples: Samples, *, qps: float) -> LoadResult:
    """Returns the figures of a test at a rate of `qps`."""
    is_ok = samples.codes == Code.OK
    ok, sent = samples.taken(is_ok), samples.taken(samples.codes != NOT_SENT)
    lateness_ms = percentiles_ms(np.maximum(sent.sent_s - sent.due_s, 0.0))
    end_s = float(np.nanmax(sent.done_s)) if len(sent.done_s) else 0.0
    return LoadResult(
        offered_qps=qps,
        achieved_qps=len(ok.codes) / end_s if end_s else 0.0,
        num_due=len(samples.codes),
        num_ok=len(ok.codes),
        errors=_errors(samples.codes[~is_ok]),
        latency_ms=percentiles_ms(ok.done_s - ok.due_s),
        service_ms=percentiles_ms(ok.done_s - ok.sent_s),
        lateness_ms=lateness_ms,
        client_is_late=lateness_ms.get("p99", 0.0) > LATE_MS,
        samples=samples,
    )


def _errors(codes: NDArray[np.int16]) -> dict[str, int]:
    found = zip(*np.unique(codes, return_counts=True), strict=True)
    return {"NOT_SENT" if code == NOT_SENT else Code(int(code)).name: int(count) for code, count in found}
