"""Topics of so many partitions that a broker takes them on over turns of its loop."""

import errno
from typing import Any

import pytest

from ottla.broker.replication.hosting import CREATION_COST, TURN_COST
from ottla.log.log import Log
from ottla.proto import metadata_pb2 as pb
from ottla.runtime.errors import ErrorCode
from ottla.testing.replication.broker import TOPIC_ID, Broker
from ottla.testing.replication.cluster import Cluster, run

MANY = 5 * TURN_COST // CREATION_COST


def hosted(broker: Broker) -> int:
    assert broker.manager is not None
    return sum(isinstance(key[0], bytes) for key in broker.manager.partitions)


def test_a_large_topic_is_taken_on_over_turns_of_the_loop() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=MANY)
        broker = cluster.brokers[1]
        steps = set()

        def done() -> bool:
            steps.add(hosted(broker))
            return all(hosted(each) == MANY for each in cluster.brokers.values())

        await cluster.until(done)
        assert len(steps) > 3
        client = await cluster.client()
        assert (await client.produce(b"x", index=MANY - 1)).error_code == 0

    run(scenario)


def test_a_replica_that_waited_has_the_role_that_the_metadata_gives_it_by_then() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=MANY)
        last = MANY - 1
        assert hosted(cluster.brokers[1]) < MANY
        change = pb.PartitionChange(topic_id=TOPIC_ID, partition_id=last, isr=pb.Replicas(ids=(1, 2)))
        cluster.tell(pb.MetadataRecord(partition_change=change))
        await cluster.until(lambda: hosted(cluster.brokers[1]) == MANY)
        manager = cluster.brokers[1].manager
        assert manager is not None
        leader = manager.partitions[TOPIC_ID, last].leader
        assert leader is not None
        assert leader.isr.committed == (1, 2)
        client = await cluster.client()
        assert (await client.produce(b"x", index=last)).error_code == 0

    run(scenario)


def test_a_replica_that_waited_is_still_new_when_the_isr_names_it_by_then() -> None:
    """Else a broker that lost a directory would look for its log there, and be no replica."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=MANY)
        broker, last = cluster.brokers[1], MANY - 1
        assert hosted(broker) < MANY
        broker.lost_directory = True
        for isr in ((1, 2), (1,)):
            change = pb.PartitionChange(topic_id=TOPIC_ID, partition_id=last, isr=pb.Replicas(ids=isr))
            cluster.tell(pb.MetadataRecord(partition_change=change))
        await cluster.until(lambda: hosted(broker) == MANY)
        client = await cluster.client()
        assert (await client.produce(b"x", index=last)).error_code == 0

    run(scenario)


def test_a_replica_that_the_isr_names_is_not_made_anew_where_a_directory_is_lost() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        broker = cluster.brokers[3]
        broker.lost_directory = True
        new, known = (
            pb.Partition(
                topic_id=TOPIC_ID, partition_id=index, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1, leader_epoch=1
            )
            for index in (1, 2)
        )
        change = pb.PartitionChange(topic_id=TOPIC_ID, partition_id=2, isr=pb.Replicas(ids=(1, 2, 3)))
        cluster.tell(
            pb.MetadataRecord(partition=new),
            pb.MetadataRecord(partition=known),
            pb.MetadataRecord(partition_change=change),
        )
        manager = broker.manager
        assert manager is not None
        assert manager.missing_error(TOPIC_ID, 2) is ErrorCode.KAFKA_STORAGE_ERROR
        assert sorted(index for name, index in manager.partitions if name == TOPIC_ID) == [0, 1]

        cluster.tell(pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=TOPIC_ID)))
        assert not [*manager.offline], "neither by id nor by name, which another topic may have"

    run(scenario)


def test_a_topic_deleted_while_it_waits_leaves_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=MANY)
        broker = cluster.brokers[1]
        await cluster.until(lambda: hosted(broker) > 0)
        cluster.tell(pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=TOPIC_ID)))
        await cluster.until(lambda: hosted(broker) == 0)
        waited = cluster.loop.time()
        await cluster.until(lambda: cluster.loop.time() > waited + 1)
        assert hosted(broker) == 0

    run(scenario)


def test_a_log_that_was_there_gets_the_settings_that_the_topic_has_by_then() -> None:
    """It was opened with those of the broker's last life, and the change came before the replica had its turn."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        broker = cluster.brokers[1]
        assert broker.manager is not None
        log = broker.log()
        broker.manager.partitions.clear()
        cluster.set_topic(retention_ms="4711")
        assert log.config.retention_ms != 4711
        cluster.elect(2, (1, 2, 3))
        assert broker.log() is log
        assert log.config.retention_ms == 4711

    run(scenario)


def test_the_log_of_a_replica_that_is_offline_goes_with_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in a directory that works, but the replica could not be hosted. Nobody else would ever remove it."""

    def fail(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        broker = cluster.brokers[1]
        assert broker.manager is not None
        log = broker.log()
        broker.manager.partitions.clear()  # as after a start, before its turn
        cluster.set_topic(retention_ms="4711")
        monkeypatch.setattr(Log, "configure", fail)
        cluster.elect(2, (1, 2, 3))
        assert [*broker.manager.offline]
        cluster.tell(pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=TOPIC_ID)))
        assert not [*broker.manager.offline]
        assert not log.disk.exists(log.directory)

    run(scenario)
