"""The picture of a load test: latency over time, its distribution, and what failed when."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from serving.load_figures import LoadResult
from serving.server.status import Code

__all__ = ["plot", "windows"]

_WINDOWS = 60
_BINS = 80


def windows(times_s: NDArray[np.float64], *, end_s: float, width_s: float) -> list[NDArray[np.int64]]:
    """Returns the places of the times in each window [k w, (k + 1) w), in order, up to the end."""
    number = np.minimum((times_s / width_s).astype(np.int64), max(int(np.ceil(end_s / width_s)) - 1, 0))
    return [np.flatnonzero(number == k) for k in range(int(number.max(initial=-1)) + 1)]


def plot(result: LoadResult, path: Path, *, title: str) -> None:
    """Writes the picture; its kind follows from the name, such as .png or .svg."""
    from matplotlib.figure import Figure

    samples = result.samples
    is_ok = samples.codes == Code.OK
    ok = samples.taken(is_ok)
    latency_ms = (ok.done_s - ok.due_s) * 1e3
    end_s = float(samples.due_s[-1]) if len(samples.due_s) else 0.0
    width_s = max(end_s / _WINDOWS, 0.1)
    figure = Figure(figsize=(10, 7), layout="constrained")
    over_time, spread = figure.subplots(2, 1)
    parts = [part for part in windows(ok.due_s, end_s=end_s, width_s=width_s) if len(part)]
    for share, style in ((50, "-"), (99, "-")):
        values = [np.percentile(latency_ms[part], share) for part in parts]
        over_time.plot([ok.due_s[part].mean() for part in parts], values, style, label=f"p{share}")
    failed_s = samples.due_s[~is_ok]
    if len(failed_s):
        over_time.plot(failed_s, np.full(len(failed_s), over_time.get_ylim()[1]), "rx", label="failed")
    over_time.set(xlabel="time of the request, s", ylabel="latency, ms", ylim=(0, None), title=title)
    over_time.legend()
    if len(latency_ms):
        low, high = max(float(latency_ms.min()), 1e-3), float(latency_ms.max()) * 1.01
        spread.hist(latency_ms, bins=np.geomspace(low, max(high, low * 1.01), _BINS).tolist())
    spread.set(xscale="log", xlabel="latency, ms", ylabel="requests")
    for name in ("p50", "p99", "p99.9"):
        if name in result.latency_ms:
            spread.axvline(result.latency_ms[name], color="k", linestyle=":")
            spread.annotate(name, (result.latency_ms[name], spread.get_ylim()[1] * 0.95), rotation=90, va="top")
    figure.savefig(path, dpi=110)
