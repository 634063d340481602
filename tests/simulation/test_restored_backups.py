"""A cluster that is put back from backups of different times: the walk of docs/quorum.md (a way out)."""

import asyncio
from collections.abc import Mapping
from random import Random

from ottla.broker.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from ottla.broker.wire.messages.add_raft_voter_response import AddRaftVoterResponse
from ottla.broker.wire.messages.elect_leaders_request import ElectLeadersRequest
from ottla.broker.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.cli.output import Row
from ottla.cli.quorum_recovery import describe_node, execute_node
from ottla.log.directories.checkpoints import MetaProperties
from ottla.runtime.identifiers import random_id
from ottla.runtime.simulation.backup import Backup, back_up, put_back
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.testing.simulation.cluster import CLIENT_PORT, CONTROLLER_PORT, DATA, SETTINGS
from ottla.testing.simulation.workload import History, check_history, read_partition
from tests.simulation.conftest import Rig, play
from tests.simulation.test_quorum_recovery import host_on

UNCLEAN = 1
OF_THE_QUORUM = ("__cluster_metadata-0", "quorum-begun", "meta.properties", "initial-controllers.json")
NODES = (1, 2, 3)


async def a_life(rig: Rig) -> tuple[History, dict[int, Backup]]:
    """What was written, and each node's disk as it was at another time: what was made by then, and one record more or less."""
    backups = {}
    await rig.topic("t", 1, 3, retention_ms="-1")
    producer = rig.produce("t", 0)
    for number in NODES:
        await rig.goes_on(producer)
        if number == max(NODES):
            rig.users.pop().cancel()  # all that was acknowledged is in the last backup
        await rig.topic(f"made-{number}", 1, 3)
        backups[number] = back_up(rig.cluster.nodes[number].platter)
    for node in rig.cluster.nodes.values():
        node.kill()
    return producer.history, backups


def restore(rig: Rig, backups: Mapping[int, Backup]) -> int:
    """All disks are put back, none is started. Returns the node that has most of the quorum's log."""
    seen: dict[int, Row] = {}
    for number, backup in backups.items():
        platter = rig.cluster.nodes[number].platter
        put_back(platter, backup)
        seen[number] = describe_node(rig.cluster._configs[number], host_on(platter))
    return max(seen, key=lambda number: (seen[number]["last epoch"], seen[number]["end offset"]))


def format_anew(rig: Rig, number: int) -> bytes:
    """The quorum's part of its directory; the topics' logs stay. Returns the id of the directory."""
    disk = SimulatedDisk(rig.cluster.nodes[number].platter)
    meta = MetaProperties.read(disk, DATA)
    assert meta is not None
    for name in OF_THE_QUORUM:
        path = f"{DATA}/{name}"
        if disk.is_directory(path):
            disk.remove_tree(path)
        elif disk.exists(path):
            disk.unlink(path)
    directory_id = random_id(Random(number))
    MetaProperties(meta.cluster_id, number, directory_id).write(disk, DATA)
    return directory_id


async def start(rig: Rig, number: int) -> None:
    life = rig.cluster.lives[number]
    rig.cluster.nodes[number].start(lambda host: rig.cluster._main(number, host))
    await rig.until(lambda: rig.cluster.lives[number] > life and rig.up(number), limit_s=60)


def at(rig: Rig, number: int) -> tuple[str, int]:
    return rig.cluster.nodes[number].name, CLIENT_PORT


async def join(rig: Rig, number: int, directory_id: bytes, newest: int) -> None:
    place = Listener("CONTROLLER", rig.cluster.nodes[number].name, CONTROLLER_PORT)
    request = AddRaftVoterRequest(None, 30_000, number, directory_id, [place])
    answer = await rig.client().call(at(rig, newest), request, AddRaftVoterResponse)
    assert answer.error_code == 0, answer.error_message


async def elect_from_what_is_left(rig: Rig, newest: int, names: set[str]) -> None:
    """Again until it leads all: the brokers that are not there are given up first, when their sessions are over."""

    def leads() -> bool:
        return all(rig.view(name, 0, newest).leader == newest for name in names)

    for _ in range(60):
        await rig.client().call(at(rig, newest), ElectLeadersRequest(UNCLEAN, None), ElectLeadersResponse)
        await asyncio.sleep(0.5)
        if leads():
            return
    raise AssertionError("partitions are without a leader")


def test_the_newest_backup_goes_on_and_the_others_join_with_what_they_have() -> None:
    async def scenario(rig: Rig) -> None:
        history, backups = await a_life(rig)
        newest = restore(rig, backups)
        assert newest == max(NODES), "the last backup has most"
        done = execute_node(rig.cluster._configs[newest], host_on(rig.cluster.nodes[newest].platter))
        assert done["no longer voters"] == [number for number in NODES if number != newest]

        await start(rig, newest)
        names = {"t", *(f"made-{number}" for number in NODES)}
        await elect_from_what_is_left(rig, newest, names)
        others = [number for number in NODES if number != newest]
        rig.cluster.voters, rig.cluster.joining = (newest,), tuple(others)
        for number in others:
            directory_id = format_anew(rig, number)
            rig.cluster._configs[number] = rig.cluster._config(number, SETTINGS)
            await start(rig, number)
            await join(rig, number, directory_id, newest)
        await rig.until(
            lambda: all(
                len(rig.view(name, 0, newest).isr) == 3 and rig.view(name, 0, newest).leader >= 0 for name in names
            ),
            limit_s=60,
        )
        assert check_history(history, await read_partition(rig.client(), "t", 0)) == 0
        after = rig.produce("t", 0)
        await rig.goes_on(after)

    play(scenario)
