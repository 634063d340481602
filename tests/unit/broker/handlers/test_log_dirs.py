"""DescribeLogDirs: what lies where. AlterReplicaLogDirs: many moves begin over turns."""

import asyncio
import errno
from random import Random
from typing import Any, cast

import pytest

from ottla.broker.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.broker.wire.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.broker.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse, DescribeLogDirsResult
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import MetaProperties
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from tests.unit.broker.handlers.conftest import Site

TOPIC_ID = b"T" * 16
BATCH = encode_batch([Record(0, 1, b"key", b"value")])


class Bench:
    """Four partitions of one topic over two directories; each has one more batch than the one before."""

    def __init__(self) -> None:
        self.platter = Platter.seeded(1)
        disk = SimulatedDisk(self.platter)
        for number, path in enumerate(("/a", "/b")):
            disk.make_directories(path)
            MetaProperties("c", 1, bytes([number + 1]) * 16).write(disk, path)
        settings = ManagerSettings(cluster_id="c", node_id=1)
        self.manager = LogManager(disk, ["/a", "/b"], LogConfig(), settings, Random(1))
        self.manager.open_all(0)
        for index in range(4):
            log = self.manager.get_or_create(TopicPartition("flights", index), LogConfig(), TOPIC_ID, now_ms=0)
            for _ in range(index):
                log.append_as_leader(bytearray(BATCH), 0, 0)
        self.site = Site()
        self.site.broker.logs = self.manager

    def ask(self, *wanted: tuple[str, list[int]], everything: bool = False) -> list[DescribeLogDirsResult]:
        topics = None if everything else [DescribableLogDirTopic(name, indexes) for name, indexes in wanted]
        answer = self.site.ask(DescribeLogDirsRequest(topics), 4)
        assert isinstance(answer, DescribeLogDirsResponse)
        assert answer.error_code == 0
        return answer.results


@pytest.fixture
def bench() -> Bench:
    return Bench()


def sizes(result: DescribeLogDirsResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_size for topic in result.topics for each in topic.partitions
    }


def test_all_partitions_are_found_with_their_sizes(bench: Bench) -> None:
    first, second = bench.ask(everything=True)
    assert (first.error_code, first.log_dir, second.log_dir) == (0, "/a", "/b")
    assert sizes(first) == {("flights", 0): 0, ("flights", 2): 2 * len(BATCH)}
    assert sizes(second) == {("flights", 1): len(BATCH), ("flights", 3): 3 * len(BATCH)}


def test_only_what_is_asked_for_is_told(bench: Bench) -> None:
    first, second = bench.ask(("flights", [1, 9]), ("unknown", [0]))
    assert sizes(first) == {}
    assert sizes(second) == {("flights", 1): len(BATCH)}


def test_the_size_of_the_disk_is_told(bench: Bench) -> None:
    bench.platter.capacity_bytes = 1_000_000
    assert [result.total_bytes for result in bench.ask()] == [1_000_000] * 2
    assert [result.usable_bytes for result in bench.ask()] == [1_000_000 - bench.platter.used_bytes] * 2


def test_a_failed_directory_is_told_with_its_error(bench: Bench) -> None:
    bench.manager.roots[0].failed(OSError(errno.EIO, "gone"))
    first, second = bench.ask(everything=True)
    assert (first.error_code, first.log_dir, first.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, "/a", [])
    assert (second.error_code, len(sizes(second))) == (0, 2)


def test_a_disk_that_cannot_be_asked_counts_as_failed(bench: Bench) -> None:
    bench.platter.fail("/a")
    assert bench.ask(everything=True)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("everything", [True, False])
def test_many_logs_are_looked_at_over_turns_and_what_goes_meanwhile_is_not_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, everything: bool
) -> None:
    monkeypatch.setattr("ottla.broker.handlers.describe_log_dirs.PIECE", 1)
    wanted = None if everything else [DescribableLogDirTopic("flights", [0, 1, 2, 3])]

    async def ask() -> None:
        bench.site.send(DescribeLogDirsRequest(wanted), 4)
        assert not bench.site.written
        del bench.manager.logs[TopicPartition("flights", 3)]
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(ask())
    first, second = bench.site.received("DescribeLogDirsResponse", 4).results
    assert sizes(first) == {("flights", 0): 0, ("flights", 2): 2 * len(BATCH)}
    assert sizes(second) == {("flights", 1): len(BATCH)}


@pytest.mark.parametrize(("error", "in_a_turn"), [(ErrorCode.LOG_DIR_NOT_FOUND, 100), (ErrorCode.NONE, 2)])
def test_many_moves_begin_over_turns(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: ErrorCode, in_a_turn: int
) -> None:
    monkeypatch.setattr("ottla.broker.handlers.alter_replica_log_dirs.WORK", 100)
    begun: list[TopicPartition] = []

    class Moves:
        def request(self, partition: TopicPartition, path: str) -> ErrorCode:
            begun.append(partition)
            return error

    bench.site.broker.moves = cast(Any, Moves())
    indexes = list(range(in_a_turn + 1))

    async def ask() -> None:
        topics = [AlterReplicaLogDirTopic("flights", indexes)]
        bench.site.send(AlterReplicaLogDirsRequest([AlterReplicaLogDir("/b", topics)]), 2)
        assert (len(begun), len(bench.site.written)) == (in_a_turn, 0)
        await asyncio.sleep(0)

    asyncio.run(ask())
    (topic,) = bench.site.received("AlterReplicaLogDirsResponse", 2).results
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(each, error) for each in indexes]
