"""From the config's strategy to TensorFlow's."""

from __future__ import annotations

import tensorflow as tf

from pipeline.train_spec import StrategySpec
from preprocessing.errors import ConfigError

__all__ = ["build_strategy"]


def build_strategy(spec: StrategySpec) -> tf.distribute.Strategy:
    """Returns the strategy; call it before TensorFlow has used a device if the CPU is to be split.

    Raises:
        ConfigError: if a device does not exist, or the CPU can no longer be split.
    """
    if spec.virtual_cpus is not None:
        _split_cpu(spec.virtual_cpus)
    devices = _devices(spec)
    if spec.kind == "one_device":
        return tf.distribute.OneDeviceStrategy(devices[0])
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=_cross_device_ops(spec, devices))


def _split_cpu(count: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    wanted = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
    try:
        tf.config.set_logical_device_configuration(cpu, wanted)
    except RuntimeError as error:
        found = len(tf.config.list_logical_devices("CPU"))
        if found < count:
            raise ConfigError(
                f"strategy.virtual_cpus: {count} asked for, but TensorFlow already runs in this process with {found}; "
                "train in a process of its own"
            ) from error


def _devices(spec: StrategySpec) -> list[str]:
    """Returns the devices by their short names, such as 'CPU:1'."""
    gpus = [_short(device.name) for device in tf.config.list_logical_devices("GPU")]
    cpus = [_short(device.name) for device in tf.config.list_logical_devices("CPU")]
    if spec.virtual_cpus is not None:
        cpus = cpus[: spec.virtual_cpus]
    if not spec.devices:
        default = cpus if spec.virtual_cpus is not None else gpus or cpus
        return default[:1] if spec.kind == "one_device" else default
    missing = [name for name in spec.devices if _short(name) not in {*gpus, *cpus}]
    if missing:
        raise ConfigError(
            f"strategy.devices: {', '.join(missing)} not found on this machine, which has {', '.join([*gpus, *cpus])}"
            "; strategy.virtual_cpus splits the CPU"
        )
    return [_short(name) for name in spec.devices]


def _short(name: str) -> str:
    """Returns 'GPU:0' of '/device:GPU:0', 'gpu:0' or 'GPU:0'."""
    return ":".join(name.upper().split(":")[-2:])


def _cross_device_ops(spec: StrategySpec, devices: list[str]) -> tf.distribute.CrossDeviceOps | None:
    """Returns how replicas reduce; None is TensorFlow's own choice.

    On CPUs TensorFlow would choose collectives, which fail (CollectiveReduceV2) for a second strategy in a process.
    """
    if spec.cross_device_ops == "nccl":
        return tf.distribute.NcclAllReduce()
    if spec.cross_device_ops == "hierarchical_copy":
        return tf.distribute.HierarchicalCopyAllReduce()
    if spec.cross_device_ops == "reduction_to_one_device" or devices[0].startswith("CPU"):
        return tf.distribute.ReductionToOneDevice()
    return None
