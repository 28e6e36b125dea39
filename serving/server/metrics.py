"""Counters and histograms under TF Serving's names, and their Prometheus text."""

from __future__ import annotations

import bisect
import threading
from collections import defaultdict

from serving.server.status import Code

__all__ = ["LATENCY_BOUNDS_US", "Metrics"]

LATENCY_BOUNDS_US = tuple(10.0 * 1.8**power for power in range(33))
_REQUEST_COUNT = ":tensorflow:serving:request_count"
_REQUEST_LATENCY = ":tensorflow:serving:request_latency"

Labels = tuple[tuple[str, str], ...]


class _Histogram:
    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BOUNDS_US) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.buckets[bisect.bisect_right(LATENCY_BOUNDS_US, value)] += 1
        self.total += value


class Metrics:
    """The metrics of one server; safe for use by several threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, dict[Labels, int]] = defaultdict(lambda: defaultdict(int))
        self._histograms: dict[str, dict[Labels, _Histogram]] = defaultdict(lambda: defaultdict(_Histogram))

    def count_request(self, model_name: str, code: Code) -> None:
        """Counts a request of a model by its outcome."""
        with self._lock:
            self._counters[_REQUEST_COUNT][("model_name", model_name), ("status", code.name)] += 1

    def observe_request(self, model_name: str, *, api: str, entrypoint: str, seconds: float) -> None:
        """Adds the latency of a successful request."""
        labels = (("model_name", model_name), ("API", api), ("entrypoint", entrypoint))
        with self._lock:
            self._histograms[_REQUEST_LATENCY][labels].add(seconds * 1e6)

    def prometheus(self) -> str:
        """Returns all metrics in Prometheus's text format."""
        lines: list[str] = []
        with self._lock:
            for name, counts in self._counters.items():
                lines.append(f"# TYPE {name} counter")
                lines += [f"{name}{_format(labels)} {count}" for labels, count in counts.items()]
            for name, histograms in self._histograms.items():
                lines.append(f"# TYPE {name} histogram")
                for labels, histogram in histograms.items():
                    lines += _histogram_lines(name, labels, histogram)
        return "\n".join(lines) + "\n"


def _histogram_lines(name: str, labels: Labels, histogram: _Histogram) -> list[str]:
    lines, running = [], 0
    bounds = [f"{bound:g}" for bound in LATENCY_BOUNDS_US] + ["+Inf"]
    for bound, count in zip(bounds, histogram.buckets, strict=True):
        running += count
        lines.append(f"{name}_bucket{_format((*labels, ('le', bound)))} {running}")
    lines.append(f"{name}_sum{_format(labels)} {histogram.total:g}")
    lines.append(f"{name}_count{_format(labels)} {running}")
    return lines


def _format(labels: Labels) -> str:
    pairs = [f'{key}="{_escape(value)}"' for key, value in labels]
    return "{" + ",".join(pairs) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
