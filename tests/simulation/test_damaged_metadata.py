"""Bits of the metadata log flip, or files of it go, while a controller is down: what it acknowledged is not forgotten for that."""

import asyncio

import pytest

from ottla.broker.metadata_storage import SYNC_INTERVAL_MS
from ottla.log.directories.checkpoints import MetaProperties
from ottla.quorum.election_store import QuorumStateError
from ottla.quorum.log_start import LogStartError
from ottla.runtime.simulation.disk import SimulatedDisk
from tests.simulation.conftest import Rig, play

LOG = "/data/__cluster_metadata-0"
ONE_SEGMENT = {"metadata.log.max.record.bytes.between.snapshots": "10000000"}


def segment(rig: Rig, number: int) -> tuple[str, int]:
    """The node's one segment, and its size."""
    disk = SimulatedDisk(rig.cluster.nodes[number].platter)
    (name,) = [name for name in disk.list_directory(LOG) if name.endswith(".log")]
    return f"{LOG}/{name}", len(disk.read_bytes(f"{LOG}/{name}"))


async def stop_with(rig: Rig, topic: str, number: int) -> None:
    """The topic is committed, its records are known to be stable, and then the process dies."""
    await rig.topic(topic, 1, 1)
    await asyncio.sleep(2 * SYNC_INTERVAL_MS / 1000)
    rig.cluster.nodes[number].kill()


async def start(rig: Rig, number: int) -> LogStartError | QuorumStateError | None:
    """Starts the node's process; what it ended with within a few seconds, if it did."""
    task = rig.cluster.nodes[number].restart()
    await asyncio.wait([task], timeout=5)
    error = task.exception() if task.done() and not task.cancelled() else None
    assert error is None or isinstance(error, LogStartError | QuorumStateError), repr(error)
    rig.loop.unhandled.clear()
    return error


def test_a_voter_whose_log_rotted_does_not_elect_a_leader_that_lacks_what_it_acknowledged() -> None:
    """1 and 2 committed it, 3 was down. 2 without it and 3 would be a majority, and the topic gone without a word."""

    async def scenario(rig: Rig) -> None:
        nodes = rig.cluster.nodes
        nodes[3].kill()
        await stop_with(rig, "acknowledged", 2)
        nodes[1].kill()
        path, size = segment(rig, 2)
        before = SimulatedDisk(nodes[2].platter).read_bytes(path)
        nodes[2].platter.flip(path, size // 2)

        refusal = await start(rig, 2)
        assert refusal is not None
        assert "damaged at byte" in str(refusal)
        assert "ottla quorum remove-controller" in str(refusal)
        assert sum(a != b for a, b in zip(before, SimulatedDisk(nodes[2].platter).read_bytes(path), strict=True)) == 1

        assert await start(rig, 3) is None
        assert await start(rig, 1) is None
        await rig.until(lambda: rig.up(1) and rig.up(3))
        assert "acknowledged" in rig.image(3).topics_by_name
        nodes[2].platter.flip(path, size // 2)
        assert await start(rig, 2) is None
        await rig.until(lambda: rig.up(2))

    play(scenario, nodes=3, settings=ONE_SEGMENT)


def test_the_only_voter_does_not_begin_its_log_anew_below_its_image() -> None:
    async def scenario(rig: Rig) -> None:
        await stop_with(rig, "acknowledged", 1)
        path, size = segment(rig, 1)
        rig.cluster.nodes[1].platter.flip(path, size // 2)
        assert await start(rig, 1) is not None
        assert await start(rig, 1) is not None, "nor does the second start"

    play(scenario, nodes=1, settings=ONE_SEGMENT)


def test_a_log_that_was_removed_by_hand_is_missed() -> None:
    async def scenario(rig: Rig) -> None:
        await stop_with(rig, "acknowledged", 2)
        SimulatedDisk(rig.cluster.nodes[2].platter).unlink(segment(rig, 2)[0])
        assert await start(rig, 2) is not None

    play(scenario, nodes=3, settings=ONE_SEGMENT)


def test_a_log_that_was_removed_in_its_first_moments_is_missed() -> None:
    """Not only seconds after the node began."""

    async def scenario(rig: Rig) -> None:
        rig.cluster.nodes[2].kill()
        SimulatedDisk(rig.cluster.nodes[2].platter).unlink(segment(rig, 2)[0])
        assert "ottla quorum remove-controller" in str(await start(rig, 2))

    play(scenario, nodes=3, settings=ONE_SEGMENT)


@pytest.mark.parametrize("joining", [0, 1], ids=["a voter", "one that may yet vote"])
def test_a_metadata_directory_that_was_removed_by_hand_is_missed(joining: int) -> None:
    """Log, vote and mark are gone with it; what lies beside the identity says that there were some."""

    async def scenario(rig: Rig) -> None:
        rig.cluster.nodes[3].kill()
        SimulatedDisk(rig.cluster.nodes[3].platter).remove_tree(LOG)
        refusal = str(await start(rig, 3))
        assert "this node has taken part in its quorum before" in refusal
        assert "ottla quorum remove-controller" in refusal
        assert await start(rig, 3) is not None, "nor does the second start"

    play(scenario, nodes=3, joining=joining)


def test_who_was_formatted_anew_has_promised_nothing() -> None:
    async def scenario(rig: Rig) -> None:
        rig.cluster.nodes[3].kill()
        disk = SimulatedDisk(rig.cluster.nodes[3].platter)
        disk.remove_tree(LOG)
        meta = MetaProperties.read(disk, "/data")
        assert meta is not None
        meta._replace(directory_id=b"another disk, 16").write(disk, "/data")
        assert await start(rig, 3) is None
        await rig.until(lambda: rig.up(3))

    play(scenario, nodes=3)


def test_a_plain_broker_may_lose_its_metadata_directory() -> None:
    async def scenario(rig: Rig) -> None:
        rig.cluster.nodes[4].kill()
        SimulatedDisk(rig.cluster.nodes[4].platter).remove_tree(LOG)
        assert await start(rig, 4) is None
        await rig.until(lambda: rig.up(4))

    play(scenario, nodes=3, plain_brokers=1)


def test_a_vote_that_was_removed_by_hand_is_missed() -> None:
    """A voter that forgot its vote gives it twice, and an epoch has two leaders."""

    async def scenario(rig: Rig) -> None:
        await stop_with(rig, "acknowledged", 2)
        SimulatedDisk(rig.cluster.nodes[2].platter).unlink(f"{LOG}/quorum-state")
        assert "there is none" in str(await start(rig, 2))

    play(scenario, nodes=3)


def test_an_image_that_was_removed_is_made_anew() -> None:
    """It is a copy of what the log and its snapshots say."""

    async def scenario(rig: Rig) -> None:
        await stop_with(rig, "committed", 2)
        SimulatedDisk(rig.cluster.nodes[2].platter).unlink(f"{LOG}/image")
        assert await start(rig, 2) is None
        await rig.until(lambda: rig.up(2))
        await rig.topic("next", 1, 1)
        assert {"committed", "next"} <= set(rig.image(2).topics_by_name)

    play(scenario, nodes=3)


def test_a_plain_broker_fetches_anew_what_rotted() -> None:
    """It acknowledged nothing."""

    async def scenario(rig: Rig) -> None:
        await stop_with(rig, "acknowledged", 4)
        path, size = segment(rig, 4)
        rig.cluster.nodes[4].platter.flip(path, size // 2)
        assert await start(rig, 4) is None
        await rig.until(lambda: rig.up(4))
        await rig.topic("next", 1, 1)
        assert {"acknowledged", "next"} <= set(rig.image(4).topics_by_name)

    play(scenario, nodes=3, plain_brokers=1, settings=ONE_SEGMENT)
