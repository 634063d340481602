"""What the tests of logs share: a simulated disk, batches, and logs on it."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

PARTITION = TopicPartition("flights", 0)
NOW_MS = 1_700_000_000_000

MakeBatch = Callable[..., bytearray]
OpenLog = Callable[..., Log]


@pytest.fixture
def platter() -> Platter:
    return Platter.seeded(7)


@pytest.fixture
def disk(platter: Platter) -> SimulatedDisk:
    disk = SimulatedDisk(platter)
    disk.make_directories("/data")
    return disk


@pytest.fixture
def make_batch() -> MakeBatch:
    """A batch of ``count`` records whose values are ``text`` and their number; other arguments as `encode_batch`."""

    def make(count: int = 1, text: str = "v", *, time: int = NOW_MS, base_offset: int = 0, **kwargs: Any) -> bytearray:
        records = [
            Record(base_offset + number, time + number, b"key", f"{text}{number}".encode()) for number in range(count)
        ]
        return encode_batch(records, base_offset=base_offset, **kwargs)

    return make


@pytest.fixture
def open_log(disk: SimulatedDisk) -> OpenLog:
    """Opens the log of the one partition; keyword arguments are `Log.open`'s or `LogConfig`'s."""

    def open_(on: SimulatedDisk | None = None, **kwargs: Any) -> Log:
        config = LogConfig(**{name: kwargs.pop(name) for name in LogConfig.__struct_fields__ if name in kwargs})
        return Log.open(on or disk, f"/data/{PARTITION}", PARTITION, config, now_ms=NOW_MS, **kwargs)

    return open_
