"""From the config's strategy to TensorFlow's."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf.coordination_config_pb2 import CoordinatedJob
from tensorflow.python.distribute import multi_worker_util
from tensorflow.python.eager import context

from pipeline.cluster import Cluster, wait_for_tasks
from pipeline.train_spec import StrategySpec
from preprocessing.errors import ConfigError

__all__ = ["build_strategy"]

_COMMUNICATION = tf.distribute.experimental.CommunicationImplementation


def build_strategy(spec: StrategySpec, *, cluster: Cluster | None = None) -> tf.distribute.Strategy:
    """Returns the strategy; call it before TensorFlow has used a device if the CPU is to be split.

    Strategies of several processes return once all of them are there.

    Args:
        spec: kind and settings.
        cluster: of the kinds that have one, see `cluster.find_cluster`.

    Raises:
        ConfigError: if a device does not exist, the CPU can no longer be split, or may not be among several processes.
    """
    if spec.kind == "multi_worker_mirrored":
        _check_one_cpu(spec)
    if spec.virtual_cpus is not None:
        _split_cpu(spec.virtual_cpus)
    if cluster is not None:
        return _parameter_server(cluster) if spec.kind == "parameter_server" else _multi_worker(spec, cluster)
    if spec.kind == "tpu":
        return _tpu(spec)
    devices = _devices(spec)
    if spec.kind == "one_device":
        return tf.distribute.OneDeviceStrategy(devices[0])
    if spec.kind == "central_storage":
        (parameter_device,) = _known([spec.parameter_device], "strategy.parameter_device")
        return tf.distribute.experimental.CentralStorageStrategy(devices, parameter_device)
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=_cross_device_ops(spec, devices))


def _multi_worker(spec: StrategySpec, cluster: Cluster) -> tf.distribute.Strategy:
    gpus = len(tf.config.list_physical_devices("GPU"))
    jobs = tf.train.ClusterSpec({job: list(addresses) for job, addresses in cluster.jobs.items() if addresses})
    _be_patient(jobs, 2 * spec.watchdog.dead_after_s)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        jobs,
        task_type=cluster.job,
        task_id=cluster.index,
        num_accelerators={"GPU": gpus},
        rpc_layer="grpc",
    )
    options = tf.distribute.experimental.CommunicationOptions(
        implementation={
            "auto": _COMMUNICATION.AUTO,
            "ring": _COMMUNICATION.RING,
            "nccl": _COMMUNICATION.NCCL,
        }[spec.communication]
    )
    return tf.distribute.MultiWorkerMirroredStrategy(resolver, options)


def _be_patient(jobs: tf.train.ClusterSpec, silence_s: float) -> None:
    """Has TensorFlow bear with a silent process for longer than our watchdog does; by itself it would for 10 s.

    No public call sets this time: the strategy leaves a service alone that is configured already.
    """
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader=multi_worker_util.coordination_leader(jobs),
        heartbeat_timeout_in_ms=round(1000 * silence_s),
        coordinated_jobs=[CoordinatedJob(name=job, num_tasks=jobs.num_tasks(job)) for job in jobs.jobs],
    )


def _check_one_cpu(spec: StrategySpec) -> None:
    """Refuses several CPU replicas in each of several processes: their first exchange of rows never ends."""
    count = spec.virtual_cpus or 1
    if count > 1 and not tf.config.list_physical_devices("GPU"):
        raise ConfigError(
            f"strategy.virtual_cpus: {count} given, but a process of multi_worker_mirrored has one replica on a CPU; "
            f"leave it out and start {count} times as many workers, or use kind: mirrored on one machine"
        )


def _parameter_server(cluster: Cluster) -> tf.distribute.Strategy:
    wait_for_tasks(cluster)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({job: list(addresses) for job, addresses in cluster.jobs.items()}),
        task_type=cluster.job,
        task_id=cluster.index,
        rpc_layer="grpc",
    )
    return tf.distribute.ParameterServerStrategy(resolver)


def _tpu(spec: StrategySpec) -> tf.distribute.Strategy:
    """Returns the strategy of a TPU; it has been run on none."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=spec.tpu or "local")
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:
        raise ConfigError(
            f"strategy.kind tpu: no TPU answers as {spec.tpu or 'the one of this machine'!r} "
            f"({' '.join(str(error).split())[:200]}); name it in strategy.tpu, or choose another kind"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


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
    if spec.devices:
        return _known(list(spec.devices), "strategy.devices")
    gpus, cpus = _present("GPU"), _present("CPU")
    default = cpus[: spec.virtual_cpus] if spec.virtual_cpus is not None else gpus or cpus
    return default[:1] if spec.kind == "one_device" else default


def _present(kind: str) -> list[str]:
    return [_short(device.name) for device in tf.config.list_logical_devices(kind)]


def _known(names: list[str], key: str) -> list[str]:
    present = [*_present("GPU"), *_present("CPU")]
    missing = [name for name in names if _short(name) not in present]
    if missing:
        raise ConfigError(
            f"{key}: {', '.join(missing)} not found on this machine, which has {', '.join(present)}"
            "; strategy.virtual_cpus splits the CPU"
        )
    return [_short(name) for name in names]


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
