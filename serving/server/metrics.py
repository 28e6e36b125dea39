"""Counters and histograms under TF Serving's names, and their Prometheus text."""

from __future__ import annotations

import bisect
import threading
from collections import defaultdict

from serving.server.status import Code

__all__ = ["LATENCY_BOUNDS_US", "SIZE_BOUNDS", "Metrics"]

LATENCY_BOUNDS_US = tuple(10.0 * 1.8**power for power in range(33))
SIZE_BOUNDS = tuple(2.0**power for power in range(21))
_MAX_NAMES, _MAX_NAME_CHARS = 1000, 256
_SERVING = ":tensorflow:serving:"
_LOADER = ":tensorflow:cc:saved_model:"
_BATCHING = _SERVING + "batching_session:"

Labels = tuple[tuple[str, str], ...]


class _Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.buckets[bisect.bisect_right(self.bounds, value)] += 1
        self.total += value


class Metrics:
    """The metrics of one server; safe for use by several threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._counters: dict[str, dict[Labels, int]] = defaultdict(lambda: defaultdict(int))
        self._histograms: dict[str, dict[Labels, _Histogram]] = defaultdict(dict)

    def _count(self, name: str, number: int = 1, **labels: str) -> None:
        with self._lock:
            self._counters[name][tuple(labels.items())] += number

    def _known_name(self, name: str) -> str:
        """Returns a model name as clients wrote it, or "(other)": what they make up must not fill the memory."""
        if name in self._names:
            return name
        if len(name) > _MAX_NAME_CHARS or len(self._names) >= _MAX_NAMES:
            return "(other)"
        self._names.add(name)
        return name

    def _observe(self, name: str, value: float, bounds: tuple[float, ...], **labels: str) -> None:
        key = tuple(labels.items())
        with self._lock:
            histogram = self._histograms[name].get(key)
            if histogram is None:
                histogram = self._histograms[name][key] = _Histogram(bounds)
            histogram.add(value)

    def count_request(self, model_name: str, code: Code) -> None:
        """Counts a request of a model by its outcome."""
        self._count(_SERVING + "request_count", model_name=self._known_name(model_name), status=code.name)

    def observe_success(self, model_name: str, *, api: str, entrypoint: str, seconds: float) -> None:
        """Counts a successful request and adds its latency."""
        # Only models that are there succeed: their names are known, whatever clients made up before.
        self._names.add(model_name)
        self._count(_SERVING + "request_count", model_name=model_name, status=Code.OK.name)
        labels = {"model_name": model_name, "API": api, "entrypoint": entrypoint}
        self._observe(_SERVING + "request_latency", seconds * 1e6, LATENCY_BOUNDS_US, **labels)

    def observe_run(self, model_name: str, *, api: str, seconds: float) -> None:
        """Adds the time that the graph alone took for a request."""
        labels = {"model_name": model_name, "API": api, "runtime": "TF1"}
        self._observe(_SERVING + "runtime_latency", seconds * 1e6, LATENCY_BOUNDS_US, **labels)

    def observe_examples(self, model_name: str, num_examples: int) -> None:
        """Adds the number of tf.Examples of a MultiInference request."""
        self._observe(_SERVING + "request_example_counts", num_examples, SIZE_BOUNDS, model=model_name)
        self._count(_SERVING + "request_example_count_total", num_examples, model=model_name)

    def observe_load(self, model_path: str, *, loaded: bool, seconds: float) -> None:
        """Counts an attempt to load a SavedModel, and the microseconds of those that succeed."""
        status = "success" if loaded else "fail"
        self._count(_LOADER + "load_attempt_count", model_path=model_path, status=status)
        if loaded:
            self._count(_LOADER + "load_latency", round(seconds * 1e6), model_path=model_path)

    def observe_warmup(self, model_path: str, code: Code, *, num_records: int, seconds: float) -> None:
        """Adds the warm-up of a version: its records and its time."""
        labels = {"model_path": model_path, "status": code.name}
        self._observe(_SERVING + "model_warmup_latency", seconds * 1e6, LATENCY_BOUNDS_US, **labels)
        self._count(_SERVING + "model_warmup_records_read", num_records, **labels)

    def observe_queueing(self, thread_pool_name: str, seconds: float) -> None:
        """Adds the time that a request waited for its batch to be run."""
        labels = {"thread_pool_name": thread_pool_name}
        self._observe(_BATCHING + "queuing_latency", seconds * 1e6, LATENCY_BOUNDS_US, **labels)

    def observe_batch(self, *, num_rows: int, num_padded_rows: int) -> None:
        """Adds a batch: its rows, and those it was filled up with to an allowed size."""
        processed = num_rows + num_padded_rows
        self._count(_BATCHING + "wrapped_run_count")
        self._observe(_BATCHING + "input_batch_size", num_rows, SIZE_BOUNDS)
        self._observe(_BATCHING + "processed_batch_size", processed, SIZE_BOUNDS)
        self._observe(_BATCHING + "padding_size", num_padded_rows, SIZE_BOUNDS, execution_batch_size=str(processed))

    def total(self, name: str) -> int:
        """Returns the sum of a counter over its labels, by either way to write its name; 0 if it never counted."""
        with self._lock:
            return sum(self._counters.get(name.replace("/", ":"), {}).values())

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
    bounds = [f"{bound:g}" for bound in histogram.bounds] + ["+Inf"]
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
