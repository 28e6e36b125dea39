"""Four virtual CPU devices and one strategy of each size on them for all tests of models."""

import contextlib

import preprocessing  # noqa: F401  isort: skip  selects Keras 2, before TensorFlow is imported
import pytest
import tensorflow as tf

# A process whose TensorFlow has run already keeps its devices: tests on several replicas are then skipped.
with contextlib.suppress(RuntimeError):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )


def _mirrored(count: int) -> tf.distribute.Strategy:
    """Returns a strategy of so many replicas; a reduction that several strategies of one process can have."""
    devices = [f"/cpu:{i}" for i in range(count)]
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.ReductionToOneDevice())


@pytest.fixture(scope="session")
def strategies() -> dict[str, tf.distribute.Strategy | None]:
    """The strategies of the contract suites."""
    if len(tf.config.list_logical_devices("CPU")) < 4:
        pytest.skip("TensorFlow was initialised with fewer devices before these tests")
    return {
        "none": None,
        "one_device": tf.distribute.OneDeviceStrategy("/cpu:0"),
        "mirrored": _mirrored(2),
        "mirrored3": _mirrored(3),
        "mirrored4": _mirrored(4),
    }
