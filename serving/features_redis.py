"""The feature store in Redis: a whole state under a name of its own, and a pointer that moves to it in one step.

    PREFIX:MODEL:current             the generation to read, and PREFIX:MODEL:VERSION:current that of a version
    PREFIX:MODEL:generations         sorted set: the generations there are, by the time they were pushed
    PREFIX:MODEL:g:GENERATION        layout, written after all records: a generation without it does not exist
    PREFIX:MODEL:g:GENERATION:K:KEY  record of a key of the K-th key set

A look-up is one round trip: the pointer comes with the records, and if it has moved on since the last time the
look-up is done again. The generation before stays until the push after, for readers that are under way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import redis
from pydantic import ValidationError
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from preprocessing.errors import ArtefactError, CorruptError, ServingError
from serving.features_embedded import Record
from serving.features_hash import Key
from serving.features_layout import FORMAT, Layout
from serving.features_records import RecordCodec, key_bytes
from serving.features_spec import FeaturesSpec

__all__ = ["Names", "RedisStore", "connect", "plain_errors"]

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.01, 0.5


class Names:
    """The names of the keys of one model."""

    def __init__(self, prefix: str, model_name: str) -> None:
        self._root = f"{prefix}:{model_name}"

    def current(self, version: int | None = None) -> str:
        """Returns the name of the pointer, of any version or of one."""
        return f"{self._root}:current" if version is None else f"{self._root}:{version}:current"

    def generations(self) -> str:
        """Returns the name of the set of generations."""
        return f"{self._root}:generations"

    def layout(self, generation: str) -> str:
        """Returns the name of the layout of a generation."""
        return f"{self._root}:g:{generation}"

    def records(self, generation: str, key_set: int) -> bytes:
        """Returns what the names of the records of a key set begin with."""
        return f"{self._root}:g:{generation}:{key_set}:".encode()


def connect(spec: FeaturesSpec, *, timeout_s: float | None = None) -> Any:
    """Returns a client of Redis; nothing is sent yet.

    Args:
        spec: where it is, and how often a call is tried again.
        timeout_s: of one call; by default that of the spec.
    """
    wait_s = spec.timeout_s if timeout_s is None else timeout_s
    faults = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError)
    try:
        return redis.Redis.from_url(
            spec.url,
            socket_timeout=wait_s,
            socket_connect_timeout=wait_s,
            retry=Retry(ExponentialBackoff(base=_FIRST_WAIT_S, cap=_LONGEST_WAIT_S), spec.retries, faults),
        )
    except ValueError as error:
        raise ServingError(f"serve.features.url: {error}") from error


@contextlib.contextmanager
def plain_errors(spec: FeaturesSpec) -> Iterator[None]:
    """Turns errors of Redis into one that says where and what to do."""
    try:
        yield
    except redis.exceptions.RedisError as error:
        text = f"the feature store at {_without_password(spec.url)} did not answer: {error}"
        raise ServingError(f"{text}; see serve.features") from error


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


class RedisStore:
    """Look-ups in Redis; safe for use by several threads at once."""

    def __init__(self, spec: FeaturesSpec, *, model_name: str, version: int | None = None) -> None:
        """Finds the generation to read.

        Args:
            spec: where Redis is.
            model_name: of the model.
            version: of the model; by default the one pushed last.

        Raises:
            ArtefactError: if nothing was pushed for this model.
            ServingError: if Redis cannot be reached.
        """
        self._spec, self._names = spec, Names(spec.prefix, model_name)
        self._pointer = self._names.current(version)
        self._redis = connect(spec)
        with plain_errors(spec):
            self._generation = self._load(self._redis.get(self._pointer))

    @property
    def layout(self) -> Layout:
        """What the state holds, and as of when."""
        return self._generation.layout

    def fetch(self, wanted: Sequence[Sequence[Key]]) -> tuple[Layout, list[list[Record | None]]]:
        """Returns the layout and, for the keys of each key set, what is known of them; None for nothing.

        Raises:
            ServingError: if Redis cannot be reached in time.
        """
        generation = self._generation
        with plain_errors(self._spec), self._redis.pipeline(transaction=False) as pipe:
            pipe.get(self._pointer)
            for start, keys in zip(generation.starts, wanted, strict=True):
                if keys:
                    pipe.mget([start + key_bytes(key) for key in keys])
            current, *answers = pipe.execute()
            if current != generation.name.encode():
                self._generation = self._load(current)
                return self._generation.layout, []
        left = iter(answers)
        records = [
            [None if content is None else codec.decode(content) for content in (next(left) if keys else [])]
            for codec, keys in zip(generation.codecs, wanted, strict=True)
        ]
        return generation.layout, records

    def _load(self, name: bytes | None) -> _Generation:
        if name is None:
            raise ArtefactError(f"{self._pointer} is not in Redis; run `rankmill features CONFIG --push`")
        generation = name.decode()
        content = self._redis.get(self._names.layout(generation))
        if content is None:
            raise ArtefactError(f"generation {generation} is not in Redis; run `rankmill features CONFIG --push`")
        try:
            layout = Layout.model_validate_json(content)
        except ValidationError as error:
            raise CorruptError(f"generation {generation} in Redis has no readable layout: {error}") from error
        if layout.format != FORMAT:
            raise ArtefactError(f"generation {generation} has format {layout.format}, and {FORMAT} is read here")
        return _Generation(generation, layout, self._names)

    def close(self) -> None:
        """Closes the connections."""
        self._redis.close()


class _Generation:
    """A state in Redis, and how its records are named and read."""

    def __init__(self, name: str, layout: Layout, names: Names) -> None:
        self.name, self.layout = name, layout
        self.starts = [names.records(name, place) for place in range(len(layout.key_sets))]
        self.codecs = [RecordCodec(key_set) for key_set in layout.key_sets]
