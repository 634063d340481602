"""Directories of nodes as they leave them, for those who read them without a node."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.log.compaction.cleaner import clean
from ottla.log.compaction.manager import CleanerSettings, LogCleaner
from ottla.log.compaction.worker import Outcome
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import MetaProperties
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import EndMarker, Record, encode_batch, end_marker_batch
from ottla.runtime.real_disk import RealDisk

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


class Node:
    """A node's log directory, and what is written there. `stop` it before it is read."""

    def __init__(self, home: Path, number: int) -> None:
        self.path = home / f"node-{number}"
        disk = RealDisk()
        disk.make_directories(str(self.path))
        MetaProperties("c", number, bytes(15) + bytes([number])).write(disk, str(self.path))
        settings = ManagerSettings(cluster_id="c", node_id=number, free_bytes_floor=0)
        self.manager = LogManager(disk, [str(self.path)], LogConfig(), settings, Random(3))
        self.manager.open_all(NOW_MS)

    def log(self, topic: str = "flights", partition: int = 0, *, topic_id: bytes = TOPIC_ID, **config: Any) -> Log:
        name = TopicPartition(topic, partition)
        if name in self.manager.logs:
            return self.manager.logs[name]
        return self.manager.get_or_create(name, LogConfig(**config), topic_id, now_ms=NOW_MS)

    def append(self, count: int, *, log: Log | None = None, epoch: int = 0, size: int = 20, **stamp: Any) -> int:
        """``count`` records in one batch; the log's end after them."""
        log = log or self.log()
        start = log.log_end_offset
        records = [Record(n, NOW_MS + start + n, b"k%d" % n, b"%d " % (start + n) + b"v" * size) for n in range(count)]
        log.append_as_leader(encode_batch(records, **stamp), epoch, NOW_MS, verified=True)
        return log.log_end_offset

    def end_transaction(self, producer_id: int, *, committed: bool, log: Log | None = None) -> None:
        marker = end_marker_batch(EndMarker(committed, 0), producer_id=producer_id, producer_epoch=0, timestamp=NOW_MS)
        (log or self.log()).append_own(marker, 0, NOW_MS)

    def commit(self, offset: int | None = None, log: Log | None = None) -> None:
        """Moves the high watermark to the offset, or the end."""
        log = log or self.log()
        log.set_high_watermark(log.log_end_offset if offset is None else offset)

    def compact(self) -> None:
        log = self.log()
        log.flush()
        self.manager.checkpoints.save_points()
        cleaner = LogCleaner(RealDisk(), CleanerSettings(), self.manager.checkpoints.cleaned)
        task = cleaner.next_task([log], NOW_MS)
        assert task is not None
        assert cleaner.install(task, Outcome(result=clean(RealDisk(), task.job)))
        cleaner.record(task)

    def follow(self, leader: "Node", topic: str = "flights", partition: int = 0) -> None:
        """Copies the leader's log batch for batch."""
        source, log = leader.log(topic, partition), self.log(topic, partition)
        for path in sorted(leader.directory(topic, partition).glob("*.log")):
            if path.stat().st_size:
                log.append_as_follower(path.read_bytes())
        log.set_high_watermark(source.high_watermark)

    def directory(self, topic: str = "flights", partition: int = 0) -> Path:
        return self.path / f"{topic}-{partition}"

    def segment(self, number: int = -1, topic: str = "flights", partition: int = 0) -> Path:
        return sorted(self.directory(topic, partition).glob("*.log"))[number]

    def stop(self) -> "Node":
        self.manager.close()
        return self


NewNode = Callable[[], Node]


@pytest.fixture
def new_node(tmp_path: Path) -> NewNode:
    nodes: list[Node] = []

    def make() -> Node:
        nodes.append(Node(tmp_path, len(nodes) + 1))
        return nodes[-1]

    return make


def replaced_leader(new_node: NewNode) -> tuple[Node, Node]:
    """Both have the first three records; the one that wrote more behind them was replaced by the other."""
    old, new = new_node(), new_node()
    old.append(3)
    old.commit()
    new.follow(old)
    for _ in range(3):
        old.append(3, size=50)
    new.append(3, epoch=1)
    new.commit()
    return old.stop(), new.stop()
