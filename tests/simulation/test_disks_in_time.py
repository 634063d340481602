"""A controller's disk goes back to a backup, or is new, while another was away: what the third alone has left is lost. That is said
in docs/quorum.md; but no node goes on with it, and none acts on it."""

import asyncio
from functools import partial
from typing import NamedTuple

import pytest

from ottla.broker.metadata_storage import SYNC_INTERVAL_MS
from ottla.log.directories.checkpoints import MetaProperties
from ottla.quorum.metadata.archive import DirectoryArchive
from ottla.quorum.metadata.history import at
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.simulation.backup import Backup, back_up, put_back
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.store import SimulatedStore
from ottla.testing.simulation.cluster import DATA
from ottla.testing.simulation.workload import create_topic
from tests.simulation.conftest import Rig, play

METADATA = f"{DATA}/__cluster_metadata-0"
LONG = {"metadata.log.max.record.bytes.between.snapshots": "10000000"}


def new_disk(rig: Rig, number: int) -> Backup:
    disk = SimulatedDisk(rig.cluster.nodes[number].platter)
    meta = MetaProperties.read(disk, DATA)
    assert meta is not None
    put_back(rig.cluster.nodes[number].platter, {DATA: None})
    disk = SimulatedDisk(rig.cluster.nodes[number].platter)
    MetaProperties(meta.cluster_id, number, b"another disk, 16").write(disk, DATA)
    return back_up(rig.cluster.nodes[number].platter)


def replayed(rig: Rig, number: int) -> MetadataImage:
    """What the node's log says, from its beginning or its first snapshot on."""
    disk = SimulatedDisk(rig.cluster.nodes[number].platter)
    archive = DirectoryArchive(disk, METADATA, lambda path: SimulatedStore(disk, path))
    image = rig.image(number)
    return at([batch.decoded() for batch in archive.batches()], image.offset, archive.start)


def names(image: MetadataImage) -> list[str]:
    return sorted(image.topics_by_name)


async def create(rig: Rig, *topics: str) -> None:
    for topic in topics:
        await create_topic(rig.client(), topic, 1, 1)


async def start(rig: Rig, *numbers: int) -> None:
    lives = dict(rig.cluster.lives)
    for number in numbers:
        rig.cluster.nodes[number].restart()
    await rig.until(lambda: all(rig.cluster.lives[number] > lives[number] and rig.up(number) for number in numbers))


def leader(rig: Rig) -> int | None:
    """The active controller of the latest epoch."""
    servers = [(number, rig.cluster.running(number)) for number in rig.cluster.nodes]
    found = [
        (server.quorum.leader.epoch, number)
        for number, server in servers
        if server is not None
        and server.quorum is not None
        and server.controller is not None
        and server.controller.is_active
    ]
    return max(found)[1] if found else None


class Parts(NamedTuple):
    """Who has what is gone, who was down meanwhile, and whose disk forgot it."""

    keeper: int
    away: int
    forgetful: int


async def lose_a_history(rig: Rig, disk: str, others: int, *, anew: bool = False) -> Parts:
    """Topics that the keeper and the forgetful committed are in the image of the keeper alone. The others go on for ``others``
    topics. ``anew``: in the history that is lost a leader was elected, for an epoch that the others give once more."""
    nodes = rig.cluster.nodes
    await rig.topic("base", 1, 1)
    await asyncio.sleep(2 * SYNC_INTERVAL_MS / 1000)
    leads = leader(rig)
    assert leads is not None
    first, second = (number for number in nodes if number != leads)
    keeper, away, forgetful = (first, leads, second) if anew else (leads, first, second)
    nodes[away].kill()
    before = back_up(nodes[forgetful].platter)
    await create(rig, *(f"gone-{number}" for number in range(6)))
    await rig.until(lambda: "gone-5" in rig.image(keeper).topics_by_name)
    await asyncio.sleep(2 * SYNC_INTERVAL_MS / 1000)
    nodes[keeper].kill()
    nodes[forgetful].kill()
    put_back(nodes[forgetful].platter, before if disk == "a backup" else new_disk(rig, forgetful))
    await start(rig, away, forgetful)
    await create(rig, *(f"other-{number}" for number in range(others)))
    return Parts(keeper, away, forgetful)


async def all_agree(rig: Rig) -> None:
    """All nodes have one image, and it is what their logs say."""

    def agree() -> bool:
        return all(rig.up(number) and rig.image(number) == rig.image(1) for number in (1, 2, 3))

    await rig.until(agree)
    for number in (1, 2, 3):
        assert replayed(rig, number) == rig.image(number), number


@pytest.mark.parametrize("others", [0, 1, 12], ids=["shorter", "as long", "longer"])
@pytest.mark.parametrize("disk", ["a backup", "a new disk"])
@pytest.mark.parametrize("anew", [False, True], ids=["in the same epoch", "in an epoch that is given twice"])
def test_the_node_that_held_more_goes_by_the_log_of_the_others(disk: str, others: int, *, anew: bool) -> None:
    async def scenario(rig: Rig) -> None:
        keeper, away, _ = await lose_a_history(rig, disk, others, anew=anew)
        known = rig.image(away).fork()
        await start(rig, keeper)
        assert not [name for name in names(rig.image(keeper)) if name.startswith("gone")]
        assert set(names(known)) <= set(names(rig.image(keeper)))
        await rig.topic("after", 1, 3)
        await all_agree(rig)

    play(scenario, nodes=3, settings=LONG)


def test_it_may_lead_afterwards_and_everyone_goes_on() -> None:
    async def scenario(rig: Rig) -> None:
        keeper, *_ = await lose_a_history(rig, "a backup", 2)
        await start(rig, keeper)
        for _ in range(20):
            if (leads := leader(rig)) == keeper:
                break
            assert leads is not None
            rig.cluster.nodes[leads].pause()
            await rig.until(lambda leads=leads: leader(rig) not in (None, leads))  # type: ignore[misc]  # bound now
            rig.cluster.nodes[leads].resume()
            await asyncio.sleep(2)
        assert leader(rig) == keeper
        await rig.topic("gone-0", 1, 3)
        producer = rig.produce("gone-0", 0)
        await rig.goes_on(producer)
        await start(rig, *rig.cluster.nodes)
        await rig.goes_on(producer)
        await all_agree(rig)

    play(scenario, nodes=3, settings=LONG)


def test_logs_of_topics_that_are_gone_are_set_aside_and_not_deleted() -> None:
    async def scenario(rig: Rig) -> None:
        keeper, *_ = await lose_a_history(rig, "a backup", 3)
        disk = SimulatedDisk(rig.cluster.nodes[keeper].platter)

        def logs_of_gone() -> list[str]:
            return [name for name in disk.list_directory(DATA) if name.startswith("gone")]

        before = logs_of_gone()
        assert before, "it was given some"
        await start(rig, keeper)
        await asyncio.sleep(5)
        assert len(logs_of_gone()) == len(before)
        assert all(name.endswith("-stray") for name in logs_of_gone())

    play(scenario, nodes=3, settings=LONG)


def test_a_node_whose_log_begins_in_what_is_gone_begins_anew_or_refuses() -> None:
    """Snapshots are taken every few records here, and its log begins with one that nobody else has."""

    async def scenario(rig: Rig, others: int) -> bool:
        keeper, *_ = await lose_a_history(rig, "a backup", others)
        life = rig.cluster.lives[keeper]
        rig.cluster.nodes[keeper].restart()
        await rig.until(lambda: (rig.cluster.lives[keeper] > life and rig.up(keeper)) or rig.loop.unhandled != [])
        refused = rig.loop.unhandled != []
        if refused:
            story = str(rig.loop.unhandled[0]["exception"])
            assert "asked to truncate committed records" in story
            assert "docs/quorum.md" in story
            rig.loop.unhandled.clear()
        else:
            await rig.topic("after", 1, 3)
            await all_agree(rig)
        return refused

    outcomes: list[bool] = []

    async def noted(rig: Rig, others: int) -> None:
        outcomes.append(await scenario(rig, others))

    for others in (0, 1, 12):
        play(partial(noted, others=others), nodes=3)
    assert set(outcomes) == {False, True}
