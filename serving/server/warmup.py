"""Runs the warm-up records of a version, so that its first real requests are not its slow ones."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from serving.server.inference import classify, multi_inference, regress
from serving.server.metrics import Metrics
from serving.server.predict import predict
from serving.server.servable import Servable
from serving.server.status import Code, StatusError

__all__ = ["MAX_RECORDS", "WARMUP_FILE", "warm_up"]

_log = logging.getLogger(__name__)
WARMUP_FILE = Path("assets.extra") / "tf_serving_warmup_requests"
MAX_RECORDS = 1000
_CALLS: dict[str, Callable[..., Any]] = {
    "predict_log": predict,
    "classify_log": classify,
    "regress_log": regress,
    "multi_inference_log": multi_inference,
}


def warm_up(servable: Servable, *, version: int, num_iterations: int, metrics: Metrics) -> int:
    """Runs every record of a version's warm-up file `num_iterations` times; returns how many there were.

    The model name and version inside the records are not compared with those of the servable.

    Raises:
        StatusError: if a record cannot be read or fails, or there are too many; the load has then failed too.
    """
    path = servable.path / WARMUP_FILE
    if not path.is_file():
        return 0
    start_s, num_records, code = time.perf_counter(), 0, Code.OK
    try:
        for position, record in enumerate(_read(path)):
            if position == MAX_RECORDS:
                text = f"Number of warmup records exceeds the maximum ({MAX_RECORDS}) at {path}"
                raise StatusError(Code.INVALID_ARGUMENT, text)
            for _ in range(num_iterations):
                _run(servable, _parse(record, path, position), version)
            num_records += 1
    except StatusError as error:
        code = error.code
        raise
    finally:
        seconds = time.perf_counter() - start_s
        metrics.observe_warmup(str(servable.path), code, num_records=num_records, seconds=seconds)
    _log.info("ran %d warm-up records of %s in %.2f s", num_records, servable.path, seconds)
    return num_records


def _read(path: Path) -> Iterator[bytes]:
    """Yields the records of a file, those before a damaged one first."""
    records = iter(tf.data.TFRecordDataset(str(path)))
    for _ in itertools.count():
        try:
            yield next(records).numpy()
        except StopIteration:
            return
        except tf.errors.OpError as error:
            raise StatusError(Code(error.error_code), f"Failed to read {path} as TFRecords: {error.message}") from error


def _parse(record: bytes, path: Path, position: int) -> prediction_log_pb2.PredictionLog:
    try:
        return prediction_log_pb2.PredictionLog.FromString(record)
    except DecodeError as error:
        text = f"Failed to parse warmup record {position} from {path}: it is no PredictionLog"
        raise StatusError(Code.INVALID_ARGUMENT, text) from error


def _run(servable: Servable, log: prediction_log_pb2.PredictionLog, version: int) -> None:
    kind = log.WhichOneof("log_type")
    if kind is None:
        return
    call = _CALLS.get(kind)
    if call is None:
        raise StatusError(Code.UNIMPLEMENTED, f"Unsupported log_type for warmup: {kind}")
    call(servable, getattr(log, kind).request, version=version, run=servable.run_tensors)
