"""Power cuts in every disk operation of taking and of installing a snapshot of the metadata. Production nodes, logs and images on
simulated machines: whatever the cut leaves, the node comes back with what was committed, and never with half a snapshot."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

import pytest

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.listener import NotLeaderError, QuorumFailure
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.node import QuorumNode
from ottla.quorum.peers import QUORUM_SERVICE
from ottla.quorum.raft.voters import Endpoint
from ottla.quorum.rpc.stream_transport import StreamTransport
from ottla.quorum.settings import QuorumSettings
from ottla.quorum.snapshots.files import SnapshotFiles
from ottla.quorum.snapshots.image_copies import ImageSnapshots
from ottla.quorum.snapshots.limits import RetentionLimits, SnapshotLimits
from ottla.quorum.synced_mark import SyncedMark
from ottla.runtime.host import Host
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.node import SimulatedNode
from ottla.runtime.simulation.run import simulate

DIRECTORY = "/metadata"
PARTITION = TopicPartition("__cluster_metadata", 0)
LIMITS = SnapshotLimits(after_bytes=1500, after_ms=0, retention=RetentionLimits(max_bytes=0))
PORT = 9093
OPERATIONS_MAX = 400


class Member:
    """A machine and the program on it. ``image`` is that of its last life, alive or dead."""

    def __init__(self, world: "World", number: int, *, votes: bool) -> None:
        self.world = world
        self.number = number
        self.votes = votes
        self.machine: SimulatedNode = world.loop.create_node(f"node-{number}")
        self.image = MetadataImage()
        self.quorum: QuorumNode | None = None
        self.appending = False

    def start(self) -> None:
        self.machine.start(self._main)

    async def _main(self, host: Host) -> None:
        host.disk.make_directories(DIRECTORY)
        config = LogConfig(retention_ms=-1)
        quorum_store = host.open_store(f"{DIRECTORY}/quorum-state")
        stable_offset = SyncedMark(quorum_store).offset if self.votes else 0
        now_ms = host.clock.wall_ms()
        log = Log.open(host.disk, DIRECTORY, PARTITION, config, now_ms=now_ms, stable_offset=stable_offset)
        store = host.open_store(f"{DIRECTORY}/image")
        loader = MetadataLoader(store, host.open_store)
        self.image = loader.image
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        transport = StreamTransport()

        def fail(failure: QuorumFailure) -> None:
            failed.set_exception(failure)

        quorum = self.quorum = QuorumNode(
            QuorumSettings(
                node_id=self.number,
                cluster_id="test",
                voters=self.world.voters,
                is_voter=self.votes,
                endpoint=Endpoint(self.machine.name, PORT),
                snapshots=LIMITS,
                snapshot_fetch_max_bytes=700,
            ),
            host,
            transport,
            log,
            quorum_store,
            loader,
            applied=loader.applied,
            on_failure=fail,
            snapshot_directory=DIRECTORY,
        )
        quorum.set_snapshot_source(ImageSnapshots(store, host.open_store))
        if self.votes:
            await transport.serve(self.machine.name, PORT, {QUORUM_SERVICE: quorum.handle_request})
        await quorum.start()
        quorum_store.sync()
        while not failed.done():
            await asyncio.sleep(0.01)
            if self.appending and quorum.is_leader:
                self._append(quorum)
        failed.result()

    def _append(self, quorum: QuorumNode) -> None:
        number = self.world.topics
        topic = pb.Topic(name=f"topic-{number}-{'x' * 60}", topic_id=number.to_bytes(16))
        try:
            quorum.append([pb.MetadataRecord(topic=topic).SerializeToString()], quorum.leader.epoch)
        except NotLeaderError:
            return
        self.world.topics += 1

    @property
    def snapshots(self) -> list[str]:
        return [name for name in self._names() if name.endswith(".checkpoint")]

    def _names(self) -> list[str]:
        disk = SimulatedDisk(self.machine.platter)
        return disk.list_directory(DIRECTORY) if disk.exists(DIRECTORY) else []

    def remains(self) -> str:
        """What a power cut left of a snapshot that was under way, in a word."""
        names = self._names()
        if any(name.endswith(".part") for name in names):
            return "part"
        return "snapshot" if self.snapshots else "nothing"

    def check_snapshots(self) -> None:
        """After a start, which sorts out what it cannot use."""
        files = SnapshotFiles(SimulatedDisk(self.machine.platter), DIRECTORY)
        assert all(files.is_sound(snapshot) for snapshot in files.all())

    def is_at(self, image: MetadataImage) -> bool:
        return self.machine.process is not None and self.image.offset >= image.offset and self.image == image


class World:
    def __init__(self, loop: SimulationLoop, voters: int) -> None:
        self.loop = loop
        self.topics = 0
        self.voters = {number: Endpoint(f"node-{number}", PORT) for number in range(1, voters + 1)}

    async def until(self, condition: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
        deadline = self.loop.time() + limit_s
        while not condition():
            assert self.loop.time() < deadline, f"{what}: not after {limit_s} s"
            assert self.loop.unhandled == []
            await asyncio.sleep(0.005)


async def cut_and_restart(world: World, member: Member, number: int, over: Callable[[], bool]) -> str | None:
    """A power cut in the ``number``-th operation from now, and a start on what it left (in a word: `Member.remains`). None when
    it was ``over`` before."""
    member.machine.crash_at_disk_operation(number)
    await world.until(lambda: not member.machine.up or over(), "the cut, or the end of the work")
    member.machine.platter.cancel_crash()
    if member.machine.up:
        return None
    found = member.remains()
    member.machine.restart()
    return found


async def taking(loop: SimulationLoop, number: int) -> str | None:
    """The only voter takes its second and third snapshot, which has it cut its log too."""
    world = World(loop, 1)
    member = Member(world, 1, votes=True)
    member.start()
    member.appending = True
    await world.until(lambda: bool(member.snapshots), "the first snapshot")
    end = world.topics + 40
    found = await cut_and_restart(world, member, number, lambda: world.topics >= end)
    if found is None:
        return None
    committed = member.image
    goal = world.topics + 40
    await world.until(lambda: world.topics >= goal and bool(member.snapshots), "it goes on")
    member.appending = False
    assert member.image is not committed
    assert committed.topics_by_id.items() <= member.image.topics_by_id.items()
    member.check_snapshots()
    return found


async def installing(loop: SimulationLoop, number: int, *, votes: bool, returns: bool = False) -> str | None:
    """Comes late, or ``returns`` with a log of its own, to a log that begins after a snapshot."""
    world = World(loop, 3)
    others = [Member(world, each, votes=True) for each in (1, 2)]
    late = Member(world, 3 if votes else 9, votes=votes)
    for other in others:
        other.start()
        other.appending = True
    if returns:
        late.start()
        late.appending = True  # it may lead
        await world.until(lambda: late.image.offset > 3, "a log of its own")
        late.machine.kill()
        late.appending = False
    await world.until(lambda: world.topics > 60, "something to catch up with")
    for other in others:
        other.appending = False
    await asyncio.sleep(1)
    assert all(other.snapshots for other in others)
    image = others[0].image
    late.machine.restart() if returns else late.start()
    found = await cut_and_restart(world, late, number, lambda: late.is_at(image))
    await world.until(lambda: late.is_at(image), "it catches up")
    late.check_snapshots()
    assert late.quorum is not None
    assert len(late.snapshots) == 1
    return found


class Scenario(Protocol):
    def __call__(self, loop: SimulationLoop, number: int) -> Coroutine[Any, Any, str | None]: ...


def cut_everywhere(scenario: Scenario) -> dict[str, int]:
    """How often the cuts left what, until a run's work was done before its cut came."""
    found: dict[str, int] = {}
    for number in range(1, OPERATIONS_MAX):
        left = simulate(partial(scenario, number=number), seed=number, limit_s=120)
        if left is None:
            return found
        found[left] = found.get(left, 0) + 1
    raise AssertionError(f"not over after {OPERATIONS_MAX} operations")


def test_a_power_cut_while_a_snapshot_is_taken_loses_nothing() -> None:
    found = cut_everywhere(taking)
    assert found["part"] > 3
    assert found["snapshot"] > 3


@pytest.mark.parametrize(
    ("votes", "returns"),
    [(False, False), (True, False), (True, True)],
    ids=["plain broker", "voter", "voter with a log"],
)
def test_a_power_cut_while_a_snapshot_is_installed_leaves_a_node_that_catches_up(votes: bool, returns: bool) -> None:
    found = cut_everywhere(partial(installing, votes=votes, returns=returns))
    assert found["nothing"] > 3
    assert found["part"] > 3
    assert found["snapshot"] > 3
