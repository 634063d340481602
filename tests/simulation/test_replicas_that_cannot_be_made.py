"""A broker that has no descriptor left when it is to make a replica, and has one a second later."""

import errno

import pytest

from ottla.broker.replication.hosting import Replica
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.quorum.metadata.views import DIRECTORIES_NOWHERE, NO_LEADER
from tests.simulation.conftest import Rig, play


@pytest.mark.parametrize("is_alone", [True, False])
def test_who_is_alone_in_sync_leads_once_its_replica_could_be_made(
    monkeypatch: pytest.MonkeyPatch, is_alone: bool
) -> None:
    """Told as lost, it would never lead again before a person says so, though the partition was never used. Where somebody else is in
    sync that one leads meanwhile."""
    create, failed = ReplicaManager._create, list[int]()

    def fails_once(manager: ReplicaManager, replica: Replica) -> Partition:
        if manager.node_id == 4 and replica.topic == "t" and not failed:
            failed.append(replica.view.leader)
            raise OSError(errno.EMFILE, "Too many open files")
        return create(manager, replica)

    monkeypatch.setattr(ReplicaManager, "_create", fails_once)

    async def scenario(rig: Rig) -> None:
        if is_alone:
            rig.cluster.nodes[5].kill()
            await rig.until(lambda: rig.image().brokers[5].fenced)
        await rig.place("t", [4, 5], min_insync_replicas="1")
        await rig.until(lambda: bool(failed))
        if is_alone:
            assert rig.view("t", 0).isr == (4,)
        else:
            await rig.until(lambda: rig.view("t", 0).leader == 5)
        await rig.goes_on(rig.produce("t", 0))
        assert rig.view("t", 0).leader != NO_LEADER
        await rig.until(lambda: rig.view("t", 0).directory_of(4) not in DIRECTORIES_NOWHERE)
        assert failed == [4]

    play(scenario, plain_brokers=2)


def test_who_is_restarted_before_there_is_room_for_its_new_replica_leads_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both brokers of it had no room at the same moment, so that each was still another's hope. After a start nobody there remembers that the
    replica was never made: the metadata do."""
    create, no_room = ReplicaManager._create, {4, 5}

    def fails(manager: ReplicaManager, replica: Replica) -> Partition:
        if replica.topic == "t" and manager.node_id in no_room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return create(manager, replica)

    monkeypatch.setattr(ReplicaManager, "_create", fails)

    async def scenario(rig: Rig) -> None:
        await rig.place("t", [4, 5], min_insync_replicas="1")
        await rig.until(lambda: rig.view("t", 0).leader == NO_LEADER)
        for number in (4, 5):
            rig.cluster.nodes[number].kill()
        no_room.clear()
        for number in (4, 5):
            await rig.restart(number)
        await rig.goes_on(rig.produce("t", 0))
        await rig.until(lambda: sorted(rig.view("t", 0).isr) == [4, 5])

    play(scenario, plain_brokers=2)
