"""One loaded SavedModel: signatures by name, run in a TF1 session through cached callables.

A callable per (signature, outputs) made from CallableOptions costs a tenth of `tf.saved_model.load(...)` a call with
many named inputs, and accepts shapes that differ from the placeholder's, as TF Serving does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2

from serving.server.signature import Run, Signature
from serving.server.status import Code, StatusError
from serving.server.tflite import TfliteModel
from serving.server.timed_run import run_within

__all__ = ["Servable"]

Array = NDArray[Any]

_MAX_CALLABLES = 256
# A run whose time is this many times that of the slowest one lately is not watched: watching costs.
_AMPLE = 20.0
_FADING = 0.95


class Servable:
    """A SavedModel ready to run; safe for use by several threads at once."""

    def __init__(
        self,
        session: Any,
        signature_defs: Mapping[str, Any],
        path: Path,
        *,
        batching: Callable[[Run], Run] | None = None,
        in_callers_thread: bool = False,
        engine: Run | None = None,
    ) -> None:
        self.path = path
        self.signature_defs: dict[str, meta_graph_pb2.SignatureDef] = dict(signature_defs)
        self.signatures = {name: Signature.from_proto(name, proto) for name, proto in signature_defs.items()}
        self._session = session
        self._callables: dict[tuple[tuple[str, ...], tuple[str, ...]], Callable[..., list[Any]]] = {}
        self._lock = threading.Lock()
        self._run_options = config_pb2.RunOptions(inter_op_thread_pool=-1 if in_callers_thread else 0)
        self._slowest_s = 0.0
        run = engine or self._run_now
        self.run_tensors: Run = run if batching is None else batching(run)

    @classmethod
    def load_tflite(
        cls, path: Path, *, num_interpreters: int, batching: Callable[[Run], Run] | None = None
    ) -> Servable:
        """Returns the `model.tflite` at `path`; INVALID_ARGUMENT if it does not load."""
        model = TfliteModel(path, num_interpreters=num_interpreters)
        return cls(None, model.signature_defs, path, batching=batching, engine=model.run)

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        tags: Sequence[str] = ("serve",),
        session_config: Any | None = None,
        batching: Callable[[Run], Run] | None = None,
    ) -> Servable:
        """Returns the SavedModel at `path`, its variables restored and tables initialised.

        Args:
            path: folder that holds `saved_model.pb`.
            tags: of the MetaGraph to load.
            session_config: a ConfigProto; TensorFlow's own choice of threads by default.
            batching: puts batching in front of what runs the graph.

        Raises:
            StatusError: if there is no such SavedModel or it does not load.
        """
        graph = tf.Graph()
        session = tf.compat.v1.Session(graph=graph, config=session_config)
        try:
            with graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(session, list(tags), str(path))
            _check_tensors(graph, meta_graph.signature_def)
            # With one thread between ops, the caller's own saves the way there and back: 30 us a run.
            alone = session_config is not None and session_config.inter_op_parallelism_threads == 1
            return cls(session, meta_graph.signature_def, path, batching=batching, in_callers_thread=alone)
        except tf.errors.OpError as error:
            session.close()
            raise _status_error(error) from error
        except StatusError:
            session.close()
            raise
        except Exception as error:
            # A damaged file surfaces as almost any Python exception inside the loader.
            session.close()
            code = Code.NOT_FOUND if not path.is_dir() else Code.INVALID_ARGUMENT
            raise StatusError(code, f"Could not load SavedModel at {path}: {error}") from error

    def run(
        self, signature: str, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None
    ) -> dict[str, Array]:
        """Returns the outputs of a signature, by name; strings are object arrays of bytes.

        Args:
            signature: its key, such as "serving_default".
            inputs: one array for each input name; those with a default may be left out.
            outputs: names of the outputs wanted; all by default.

        Raises:
            StatusError: with the code that TF Serving gives for the mistake.
        """
        return self.signature(signature).run(inputs, self.run_tensors, names=outputs)

    def signature(self, name: str) -> Signature:
        """Returns a signature by its key; FAILED_PRECONDITION if the model has none of that name."""
        try:
            return self.signatures[name]
        except KeyError:
            raise StatusError(Code.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.') from None

    def _run_now(
        self, feeds: Mapping[str, Array], fetches: Sequence[str], *, timeout_s: float | None = None
    ) -> list[Array]:
        start_s = time.perf_counter()
        try:
            if timeout_s is not None and timeout_s < _AMPLE * self._slowest_s:
                return run_within(self._session, feeds, fetches, timeout_s=timeout_s)
            call = self._callable(tuple(feeds), tuple(fetches))
            return [np.asarray(value) for value in call(*feeds.values())]
        except tf.errors.OpError as error:
            raise _status_error(error) from error
        except (TypeError, ValueError) as error:
            raise StatusError(Code.INVALID_ARGUMENT, f"an input cannot be fed: {error}") from error
        finally:
            # It fades: the first run of all is slow as none after it.
            self._slowest_s = max(_FADING * self._slowest_s, time.perf_counter() - start_s)

    def _callable(self, feeds: tuple[str, ...], fetches: tuple[str, ...]) -> Callable[..., list[Any]]:
        found = self._callables.get((feeds, fetches))
        if found is not None:
            return found
        options = config_pb2.CallableOptions(feed=feeds, fetch=fetches, run_options=self._run_options)
        with self._lock:
            made: Callable[..., list[Any]] = self._session._make_callable_from_options(options)
            if len(self._callables) >= _MAX_CALLABLES:
                # Clients choose the outputs: what they can ask for must not fill the memory.
                del self._callables[next(iter(self._callables))]
            self._callables[(feeds, fetches)] = made
        return made

    def close(self) -> None:
        """Frees the model; calls that come later fail."""
        with self._lock:
            self._callables.clear()
            if self._session is not None:
                self._session.close()
            # A closed session keeps its variables until it is dropped.
            self._session = None


def _check_tensors(graph: tf.Graph, signature_defs: Mapping[str, Any]) -> None:
    """Raises INVALID_ARGUMENT if a signature names tensors that the graph lacks or that are of another type."""
    for key, signature in signature_defs.items():
        for alias, info in (*signature.inputs.items(), *signature.outputs.items()):
            # What initialises a model is an operation; sparse inputs have several tensors.
            if ":" not in info.name:
                continue
            try:
                found = graph.get_tensor_by_name(info.name).dtype.base_dtype
            except (KeyError, ValueError) as error:
                text = f'signature "{key}": the graph has no tensor {info.name} for {alias}'
                raise StatusError(Code.INVALID_ARGUMENT, text) from error
            # Hand-made signatures may leave the type out, and variables of TF1 are references to theirs.
            if info.dtype and tf.as_dtype(info.dtype).base_dtype != found:
                text = f'signature "{key}": {alias} is said to be of type {info.dtype}, the graph has {found.name}'
                raise StatusError(Code.INVALID_ARGUMENT, text)


def _status_error(error: Any) -> StatusError:
    try:
        code = Code(error.error_code)
    except ValueError:
        code = Code.UNKNOWN
    return StatusError(code, str(error.message))
