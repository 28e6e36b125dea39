"""Where Beam pipelines run, the coder of their elements, and progress while they do.

Elements that carry rows are Arrow record batches; Beam's own choice for them would be pickle, ours is Arrow IPC.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.worker import sdk_worker

from preprocessing import errors

__all__ = ["MakePipeline", "RecordBatchCoder", "follow_progress", "local_pipeline", "plain_errors", "report_rows"]

MakePipeline = Callable[[], beam.Pipeline]

_POLL_S = 0.5
# Worker threads flush their output by size, between elements, and by a timer, from another thread, which can tear an
# element in two while it is being encoded (seen: rows lost, batches that do not decode). No option turns it off.
_TIMER_NEVER_MS = 7 * 24 * 3_600_000
# Beam's runner reports a worker's exception only as the text of its traceback, which ends in "TYPE: TEXT [while ...".
_ERROR_START = re.compile(r"^(?:RuntimeError: )?(?P<type>[\w.]*Error): ", re.MULTILINE)
_ERROR_END = " [while running '"


class RecordBatchCoder(beam.coders.Coder):
    """Arrow IPC stream of one record batch."""

    def encode(self, value: pa.RecordBatch) -> bytes:
        """Returns the IPC stream, schema included."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_batch(value)
        return sink.getvalue().to_pybytes()

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        """Returns the batch of an IPC stream."""
        with pa.ipc.open_stream(encoded) as reader:
            return reader.read_next_batch()

    def estimate_size(self, value: pa.RecordBatch) -> int:
        """Returns the bytes of the rows; Beam's own estimate encodes them to know."""
        return int(value.nbytes)

    def is_deterministic(self) -> bool:
        """Equal batches may differ in padding and offsets: never a key."""
        return False


beam.coders.registry.register_coder(pa.RecordBatch, RecordBatchCoder)


def local_pipeline(
    *, workers: int = 0, mode: Literal["multi_threading", "multi_processing"] = "multi_threading"
) -> beam.Pipeline:
    """Returns a pipeline on Beam's in-process portable runner; 0 workers means one for each processor.

    The runner is named: plain `DirectRunner` first tries to download another one.
    """
    options = PipelineOptions(
        flags=[],
        direct_num_workers=workers or os.cpu_count() or 1,
        direct_running_mode=mode,
        # Bundles are few and large here; the default progress polling of idle workers only costs.
        experiments=["disable_logging_submission_environment"],
        # Elements are not annotated, so there is nothing to check; trying costs a third of building the graph.
        pipeline_type_check=False,
    )
    worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = _TIMER_NEVER_MS
    # Worker threads print each traceback, of interrupted work too, beside what the runner raises with the same text.
    vars(sdk_worker)["print"] = lambda *_, **__: None
    return beam.Pipeline(runner=FnApiRunner(), options=options)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Turns what Beam makes of a worker's exception back into that exception, if it is ours or the system's."""
    try:
        yield
    except RuntimeError as error:
        original = _original(str(error))
        if original is None:
            raise
        raise original from error


def _original(text: str) -> Exception | None:
    end = text.rfind(_ERROR_END)
    starts = list(_ERROR_START.finditer(text, 0, max(end, 0)))
    if not starts:
        return None
    module, _, name = starts[-1]["type"].rpartition(".")
    kind = getattr(errors if module == errors.__name__ else builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.RankmillError | OSError | MemoryError):
        return kind(text[starts[-1].end() : end])
    return None


def report_rows(folder: str, num_rows: int) -> None:
    """Adds rows to the progress of a job; called by workers, in any process that shares the folder."""
    with contextlib.suppress(OSError):  # progress is worth less than the work
        (Path(folder) / uuid.uuid4().hex).write_text(str(num_rows), encoding="ascii")


@contextlib.contextmanager
def follow_progress(folder: Path, observe: Callable[[int], None]) -> Iterator[None]:
    """While the block runs, passes the number of rows reported so far to `observe`, twice a second."""
    folder.mkdir(parents=True, exist_ok=True)
    done = threading.Event()

    def total() -> int:
        counts = [path.read_text(encoding="ascii") for path in folder.iterdir()]
        return sum(int(count) for count in counts if count)

    def poll() -> None:
        while not done.wait(_POLL_S):
            observe(total())

    thread = threading.Thread(target=poll, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    observe(total())
