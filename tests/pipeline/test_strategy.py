import pytest
import tensorflow as tf
from pydantic import ValidationError

from pipeline.cluster import Cluster
from pipeline.strategy import build_strategy
from pipeline.train_spec import StrategySpec
from preprocessing.errors import ConfigError


def test_one_device_by_default() -> None:
    strategy = build_strategy(StrategySpec())
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy)
    assert strategy.num_replicas_in_sync == 1


def test_mirrored_on_named_devices() -> None:
    strategy = build_strategy(StrategySpec(kind="mirrored", devices=("CPU:0", "/device:cpu:1")))
    assert isinstance(strategy, tf.distribute.MirroredStrategy)
    assert strategy.num_replicas_in_sync == 2


def test_mirrored_takes_as_many_virtual_cpus_as_told() -> None:
    assert build_strategy(StrategySpec(kind="mirrored", virtual_cpus=1)).num_replicas_in_sync == 1
    assert build_strategy(StrategySpec(kind="mirrored", virtual_cpus=2)).num_replicas_in_sync == 2


def test_a_device_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match=r"strategy\.devices: GPU:7 not found .* which has .*CPU:0"):
        build_strategy(StrategySpec(devices=("GPU:7",)))


def test_a_cpu_that_can_no_longer_be_split_is_said() -> None:
    tf.constant(1)
    with pytest.raises(ConfigError, match=r"strategy\.virtual_cpus: 5 asked for, .* runs in this process with"):
        build_strategy(StrategySpec(kind="mirrored", virtual_cpus=5))


def test_options_of_another_kind_are_refused() -> None:
    with pytest.raises(ValidationError, match="use kind: mirrored"):
        StrategySpec(devices=("CPU:0", "CPU:1"))
    with pytest.raises(ValidationError, match="belongs to kind: mirrored"):
        StrategySpec(cross_device_ops="nccl")


def test_workers_of_several_processes_have_one_cpu_each() -> None:
    cluster = Cluster({"worker": ("127.0.0.1:1", "127.0.0.1:2")}, "worker", 0)
    with pytest.raises(ConfigError, match=r"strategy\.virtual_cpus: 2 given.*start 2 times as many workers"):
        build_strategy(StrategySpec(kind="multi_worker_mirrored", virtual_cpus=2), cluster=cluster)
