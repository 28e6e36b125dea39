"""When the requests of a load test are due, and what became of each."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["NOT_SENT", "Arrivals", "Samples", "arrival_times", "share_of"]

Arrivals = Literal["poisson", "uniform"]
NOT_SENT = -1


@dataclasses.dataclass(frozen=True)
class Samples:
    """What became of the N requests of a test, in the order in which they were due.

    Attributes:
        due_s: float64 [N], when each was due, in seconds from the start.
        sent_s: float64 [N], when it was sent; NaN if it was not.
        done_s: float64 [N], when its answer or error was there; NaN if it was not sent.
        codes: int16 [N], status codes; `NOT_SENT` if too many others were open, or the test was stopped before.
    """

    due_s: NDArray[np.float64]
    sent_s: NDArray[np.float64]
    done_s: NDArray[np.float64]
    codes: NDArray[np.int16]

    def taken(self, which: Any) -> Samples:
        """Returns the samples at places, or where a mask is true."""
        return Samples(self.due_s[which], self.sent_s[which], self.done_s[which], self.codes[which])


def arrival_times(kind: Arrivals, *, qps: float, duration_s: float, seed: int) -> NDArray[np.float64]:
    """Returns float64 [N], ascending times in [0, duration_s).

    "poisson" draws independent exponential gaps of mean 1 / qps, as many independent users make them; "uniform" has
    equal gaps. The times follow from the seed and the rate alone: no answer, however late, moves them.
    """
    if kind == "uniform":
        return np.arange(int(np.ceil(qps * duration_s - 1e-9)), dtype=np.float64) / qps
    draws = np.random.default_rng(seed)
    # A Poisson process: its count is Poisson, its times are then independent and uniform.
    count = int(draws.poisson(qps * duration_s))
    return np.sort(draws.uniform(0.0, duration_s, count))


def share_of(times_s: NDArray[np.float64], *, index: int, processes: int) -> NDArray[np.float64]:
    """Returns every `processes`-th time, beginning with number `index`: what one of several processes sends."""
    return times_s[index::processes]
