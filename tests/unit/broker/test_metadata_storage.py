"""The image's store becomes durable by itself, on a thread; what the settings say reaches the log and the snapshots."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.broker import metadata_storage
from ottla.broker.metadata_storage import (
    SYNC_CHECK_MS,
    SYNC_INTERVAL_MS,
    StoreSync,
    image_named,
    open_metadata_log,
    open_quorum_store,
    snapshot_limits,
)
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.election_store import QuorumStateError
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.snapshots.limits import RetentionLimits, SnapshotLimits
from ottla.runtime.key_value import DamagedStoreError
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.timers import LoopTimers
from ottla.testing.quorum.memory import MemoryStore

INTERVAL_S = SYNC_INTERVAL_MS / 1000
NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}

NOTHING = pb.MetadataRecord(no_op=pb.NoOp()).SerializeToString()


class CountedStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0
        self.error: OSError | None = None

    def sync(self) -> None:
        if self.error is not None:
            raise self.error
        self.syncs += 1


class Rig:
    def __init__(self, loop: SimulationLoop) -> None:
        self.loop = loop
        self.store = CountedStore()
        self.loader = MetadataLoader(self.store)
        self.quorum_store = CountedStore()
        self.syncing = StoreSync(self.loader, self.quorum_store, LoopTimers(loop))
        self.offset = 0

    def commit(self) -> None:
        self.loader.on_commit(CommittedBatch(self.offset, self.offset, 1, 0, [NOTHING], ""))
        self.offset += 1


def run(scenario: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    loop = SimulationLoop(seed=1)
    try:
        loop.run_until_complete(_rigged(loop, scenario))
        assert loop.unhandled == []
    finally:
        loop.close()


async def _rigged(loop: SimulationLoop, scenario: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    await scenario(Rig(loop))


def test_what_was_committed_becomes_durable_within_the_interval() -> None:
    async def scenario(rig: Rig) -> None:
        for _ in range(3):
            rig.commit()
            await asyncio.sleep(INTERVAL_S + 0.1)
        assert (rig.store.syncs, rig.quorum_store.syncs) == (3, 3)
        await rig.syncing.stop()

    run(scenario)


def test_much_is_made_durable_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_storage, "SYNC_PAIRS", 10)

    async def scenario(rig: Rig) -> None:
        for _ in range(11):
            rig.commit()
        await asyncio.sleep(2 * SYNC_CHECK_MS / 1000)
        assert rig.store.syncs == 1
        await rig.syncing.stop()

    run(scenario)


def test_nothing_new_is_not_made_durable_again() -> None:
    async def scenario(rig: Rig) -> None:
        rig.commit()
        await asyncio.sleep(20 * INTERVAL_S)
        assert rig.store.syncs == 1
        await rig.syncing.stop()

    run(scenario)


def test_nobody_looks_while_nothing_is_committed() -> None:
    async def scenario(rig: Rig) -> None:
        assert rig.loop._timers == []
        rig.commit()
        assert rig.loop._timers != []
        await asyncio.sleep(INTERVAL_S + 1)
        assert rig.store.syncs == 1
        assert rig.loop._timers == []
        await rig.syncing.stop()

    run(scenario)


def test_a_disk_that_fails_is_reported_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(rig: Rig) -> None:
        rig.commit()
        rig.store.error = OSError(28, "No space left on device")
        with caplog.at_level(logging.WARNING):
            await asyncio.sleep(5 * INTERVAL_S + 0.1)
        told = [each for each in caplog.messages if "could not be written to disk" in each]
        assert len(told) == 3, "the first time, the second and the fourth"
        assert not any("start it again" in each for each in told), "it goes on"
        rig.store.error = None
        await asyncio.sleep(INTERVAL_S + 0.1)
        assert rig.store.syncs == 1
        await rig.syncing.stop()

    run(scenario)


def test_after_the_stop_nobody_uses_the_store() -> None:
    async def scenario(rig: Rig) -> None:
        rig.commit()
        rig.loop.harness.node.slowness = 1000
        await asyncio.sleep(INTERVAL_S + 0.005)
        assert rig.store.syncs == 0, "the thread is at it"
        await rig.syncing.stop()
        assert rig.store.syncs == 1
        rig.commit()
        await asyncio.sleep(5 * INTERVAL_S)
        assert rig.store.syncs == 1

    run(scenario)


def test_snapshots_are_taken_and_kept_as_the_settings_say() -> None:
    assert snapshot_limits(ServerConfig(NODE)) == SnapshotLimits()
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "1000",
        "metadata.log.max.snapshot.interval.ms": "0",
        "metadata.max.retention.bytes": "2000",
        "metadata.max.retention.ms": "3000",
    }
    assert snapshot_limits(ServerConfig({**NODE, **settings})) == SnapshotLimits(1000, 0, RetentionLimits(2000, 3000))


def test_the_metadata_log_rolls_as_the_settings_say_and_expires_by_snapshots_alone() -> None:
    loop = SimulationLoop(seed=1)
    node = loop.create_node("node-1")
    node.boot()
    assert node.host is not None
    settings = {"metadata.log.segment.bytes": "9000000", "metadata.log.segment.ms": "5000"}
    log = open_metadata_log(node.host, "/metadata", ServerConfig({**NODE, **settings}), MemoryStore())
    assert (log.config.segment_bytes, log.config.segment_ms) == (9_000_000, 5_000)
    assert (log.config.retention_ms, log.config.retention_bytes) == (-1, -1)
    loop.close()


def damaged(path: str) -> MemoryStore:
    raise DamagedStoreError(f"{path}: MDB_INVALID")


def test_a_damaged_quorum_state_ends_the_start_with_what_to_do() -> None:
    with pytest.raises(QuorumStateError, match=r"/metadata/quorum-state: MDB_INVALID.*remove-controller"):
        open_quorum_store(damaged, "/metadata")


def test_a_damaged_image_ends_the_start_with_what_to_do() -> None:
    with (
        pytest.raises(OSError, match="/metadata/image: MDB_INVALID; the image is a copy: remove the file"),
        image_named(),
    ):
        damaged("/metadata/image")
