"""Two virtual CPU devices and one strategy on them for all tests of models."""

import contextlib

import preprocessing  # noqa: F401  isort: skip  selects Keras 2, before TensorFlow is imported
import pytest
import tensorflow as tf

# A process whose TensorFlow has run already keeps its devices: tests on two replicas are then skipped.
with contextlib.suppress(RuntimeError):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )


@pytest.fixture(scope="session")
def strategies() -> dict[str, tf.distribute.Strategy | None]:
    """The strategies of the contract suite; one mirrored object for all, with a reduction that virtual CPUs have."""
    if len(tf.config.list_logical_devices("CPU")) < 2:
        pytest.skip("TensorFlow was initialised with one device before these tests")
    return {
        "none": None,
        "one_device": tf.distribute.OneDeviceStrategy("/cpu:0"),
        "mirrored": tf.distribute.MirroredStrategy(
            ["/cpu:0", "/cpu:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
        ),
    }
