"""Selects Keras 2 before any test of this package imports TensorFlow, and makes small Beam pipelines cheap."""

from collections.abc import Iterator

import pytest

import preprocessing  # noqa: F401
from tests.preprocessing.quick_beam import quick_beam


@pytest.fixture(scope="session", autouse=True)
def _quick_beam() -> Iterator[None]:
    with quick_beam():
        yield
