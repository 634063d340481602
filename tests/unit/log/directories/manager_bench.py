"""A `LogManager` on simulated disks."""

from collections.abc import Callable
from random import Random
from typing import Any

from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import MetaProperties
from ottla.log.directories.directory import DirectoryState
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.names import TopicIdPartition, TopicPartition
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

MakeBatch = Callable[..., bytearray]


NOW_MS = 1_700_000_000_000


TOPIC_ID = bytes(range(16))


CONFIG = LogConfig()


def name(number: int) -> TopicPartition:
    return TopicPartition("flights", number)


def key(number: int) -> TopicIdPartition:
    return TopicIdPartition(name(number), TOPIC_ID)


def format_directory(disk: SimulatedDisk, path: str, number: int, cluster: str = "c", node: int = 1) -> None:
    disk.make_directories(path)
    MetaProperties(cluster, node, bytes(15) + bytes([number])).write(disk, path)


def manager_on(disk: SimulatedDisk, *paths: str, floor: int = 0, cluster: str = "c", node: int = 1) -> LogManager:
    settings = ManagerSettings(cluster_id=cluster, node_id=node, free_bytes_floor=floor)
    return LogManager(disk, paths, CONFIG, settings, Random(3))


Failed = list[tuple[DirectoryState, list[TopicPartition]]]


def put_off(disk: SimulatedDisk, **later: Any) -> LogManager:
    """One directory; what is done later waits for the test."""
    format_directory(disk, "/a", 1)
    settings = ManagerSettings(cluster_id="c", node_id=1, free_bytes_floor=0)
    manager = LogManager(disk, ["/a"], CONFIG, settings, Random(3), **later)
    manager.open_all(NOW_MS)
    return manager


def create(manager: LogManager, count: int, topic_id: bytes = TOPIC_ID) -> None:
    for number in range(count):
        manager.get_or_create(name(number), CONFIG, topic_id, now_ms=NOW_MS)


def reopen(platter: Platter, *paths: str) -> LogManager:
    platter.close_sessions()
    manager = manager_on(SimulatedDisk(platter), *(paths or ("/a", "/b")))
    manager.open_all(NOW_MS)
    return manager
