"""Followers: catching up, cutting, taking over, on the simulated network."""

import asyncio

import pytest

from ottla.broker.replication.deleting import delete_records, low_watermark
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.runtime.errors import ErrorCode
from ottla.testing.replication.broker import TOPIC_ID
from ottla.testing.replication.cluster import Cluster, run


def test_acks_all_is_answered_when_every_in_sync_replica_has_the_records() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for number in range(5):
            ack = await client.produce(b"value %d" % number)
            assert (ack.error_code, ack.base_offset) == (0, number)
            for broker in cluster.brokers.values():
                assert broker.log().log_end_offset == number + 1

    run(scenario)


def test_the_first_record_is_not_held_up_by_followers_that_come_first() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        start = cluster.loop.time()
        await client.produce(b"first")
        assert cluster.loop.time() - start < 0.2

    run(scenario)


def test_replicas_hold_the_same_bytes() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for number in range(20):
            await client.produce(*[b"%d" % number] * (number + 1))
        logs = [broker.log().read(0, 1 << 20).data for broker in cluster.brokers.values()]
        assert logs[0] == logs[1] == logs[2] != b""

    run(scenario)


def test_a_new_leader_has_all_that_was_acknowledged_and_the_old_one_cuts_what_was_not() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for number in range(5):
            await client.produce(b"%d" % number)
        cluster.brokers[2].kill()
        cluster.brokers[3].kill()
        await client.produce(b"lost", acks=1)
        cluster.brokers[1].kill()
        await cluster.brokers[2].restart()
        await cluster.brokers[3].restart()
        cluster.elect(2, (2, 3))
        other = await cluster.client(2)
        assert (await other.produce(b"kept")).base_offset == 5
        await cluster.brokers[1].restart()
        await cluster.until(lambda: len(cluster.isr()) == 3)
        logs = [broker.log().read(0, 1 << 20).data for broker in cluster.brokers.values()]
        assert logs[0] == logs[1] == logs[2]
        assert b"kept" in logs[0]
        assert b"lost" not in logs[0]

    run(scenario)


def test_an_old_leader_that_began_an_epoch_and_wrote_nothing_follows_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        await client.produce(b"one")
        # Broker 2 begins an epoch that nobody else hears of before the next one.
        change = pb.PartitionChange(topic_id=TOPIC_ID, partition_id=0, leader=2)
        record = pb.MetadataRecord(partition_change=change)
        cluster.brokers[2].learn([record])
        back = pb.MetadataRecord(partition_change=pb.PartitionChange(topic_id=TOPIC_ID, partition_id=0, leader=1))
        cluster.records += [record, back]
        for each in (record, back):
            cluster.image.apply(each, MetadataDelta())
        for number, broker in cluster.brokers.items():
            broker.learn([back] if number == 2 else [record, back])
        start = cluster.loop.time()
        assert (await client.produce(b"two")).error_code == 0
        assert cluster.loop.time() - start < 1

    run(scenario)


def test_a_follower_far_behind_the_leaders_log_starts_anew() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1, 2))
        cluster.brokers[3].kill()
        client = await cluster.client()
        for number in range(10):
            await client.produce(b"%d" % number)
        cluster.brokers[1].log().truncate_fully_and_start_at(20)
        cluster.brokers[2].log().truncate_fully_and_start_at(20)
        cluster.elect(1, (1, 2))
        await client.produce(b"after")
        await cluster.brokers[3].restart()
        await cluster.until(lambda: cluster.brokers[3].log().log_end_offset == 21)
        assert cluster.brokers[3].log().log_start_offset == 20

    run(scenario)


def test_a_follower_takes_over_where_the_leaders_log_starts() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for number in range(5):
            await client.produce(b"%d" % number)
        cluster.brokers[1].log().advance_log_start(3)
        await client.produce(b"five")
        await cluster.until(lambda: cluster.brokers[2].log().log_start_offset == 3)

    run(scenario)


@pytest.mark.parametrize("lost", [1, 3])
def test_a_follower_keeps_nothing_of_an_epoch_of_which_the_leader_deleted_everything(lost: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for number in range(5):
            await client.produce(b"%d" % number)
        cluster.brokers[2].kill()
        cluster.brokers[3].kill()
        for _ in range(lost):
            await client.produce(b"lost", acks=1)
        cluster.brokers[1].kill()
        await cluster.brokers[2].restart()
        await cluster.brokers[3].restart()
        cluster.elect(2, (2, 3))
        other = await cluster.client(2)
        assert (await other.produce(b"kept")).base_offset == 5
        manager = cluster.brokers[2].manager
        assert manager is not None
        delete_records(manager.partitions[TOPIC_ID, 0], 6)
        await cluster.brokers[1].restart()
        await cluster.until(lambda: len(cluster.isr()) == 3, limit_s=5)
        # From now on it may be elected, though it has perhaps not heard yet where the leader's log starts, ...
        follower = cluster.brokers[1].log()
        assert follower.log_end_offset == 6
        assert b"lost" not in follower.read(follower.log_start_offset, 1 << 20).data
        # ... or has not written it down.
        await cluster.until(lambda: follower.log_start_offset == 6, limit_s=1)
        cluster.brokers[1].kill()
        await cluster.brokers[1].restart()
        follower = cluster.brokers[1].log()
        assert b"lost" not in follower.read(follower.log_start_offset, 1 << 20).data

    run(scenario)


def test_followers_that_were_found_to_agree_do_not_begin_anew_where_all_is_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for number in range(5):
            await client.produce(b"%d" % number)
        cluster.elect(2, (1, 2, 3))
        leader = cluster.brokers[2]
        assert leader.manager is not None
        partition = leader.manager.partitions[TOPIC_ID, 0]
        await cluster.until(lambda: partition.leader is not None and not partition.leader.has_silent_member())
        delete_records(partition, 5)  # the leader knows its own epoch only, in which nobody wrote yet
        await cluster.until(lambda: low_watermark(partition) == 5, limit_s=1)
        for broker in cluster.brokers.values():
            assert broker.log().segments[0].base_offset == 0

    run(scenario)


def test_followers_that_know_that_all_is_committed_do_not_begin_anew_where_all_is_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for number in range(5):
            await client.produce(b"%d" % number)
        await cluster.until(lambda: all(each.log().high_watermark == 5 for each in cluster.brokers.values()))
        # Broker 2 begins an epoch and deletes everything before the others hear of that.
        change = pb.PartitionChange(topic_id=TOPIC_ID, partition_id=0, leader=2)
        record = pb.MetadataRecord(partition_change=change)
        cluster.records.append(record)
        cluster.image.apply(record, MetadataDelta())
        leader = cluster.brokers[2]
        leader.learn([record])
        assert leader.manager is not None
        partition = leader.manager.partitions[TOPIC_ID, 0]
        await cluster.until(lambda: partition.leader is not None)
        delete_records(partition, 5)
        for each in (1, 3):
            cluster.brokers[each].learn([record])
        await cluster.until(lambda: low_watermark(partition) == 5, limit_s=1)
        for broker in cluster.brokers.values():
            assert broker.log().segments[0].base_offset == 0

    run(scenario)


@pytest.mark.parametrize("idle_s", [0.0, 0.013, 1.0, 1.2, 1.4])
def test_the_first_record_of_a_later_partition_is_not_held_up_by_fetches_that_wait(idle_s: float) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        await asyncio.sleep(idle_s)
        partition = pb.Partition(topic_id=TOPIC_ID, partition_id=1, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1)
        cluster.tell(pb.MetadataRecord(partition=partition))
        start = cluster.loop.time()
        assert (await client.produce(b"first", index=1)).error_code == 0
        assert cluster.loop.time() - start < 0.1

    run(scenario)


def test_a_follower_leaves_a_leader_that_vanished_without_a_word() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(ottla_flush_before_ack="true")
        await (await cluster.client()).produce(b"before")
        cluster.brokers[1].node.crash()  # a power cut: its peers' connections stay open, to nobody
        await asyncio.sleep(1)
        await cluster.brokers[1].restart()
        client = await cluster.client()
        assert (await client.produce(b"after", timeout_ms=7_000)).error_code == 0

    run(scenario)


def test_a_leader_notes_where_its_epoch_begins_before_it_writes() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        cluster.elect(1, (1, 2, 3))
        assert cluster.brokers[1].log().epochs.entries() == ((2, 0),)

    run(scenario)


def test_every_follower_of_an_idle_partition_learns_what_is_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await (await cluster.client()).produce(b"value")
        await asyncio.sleep(1)
        assert [broker.log().high_watermark for broker in cluster.brokers.values()] == [1, 1, 1]

    run(scenario)


def test_a_follower_learns_of_a_commit_that_came_after_its_last_answer() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=2)
        client = await cluster.client()
        cluster.brokers[3].kill()
        await client.produce(b"value", acks=1)
        await client.produce(b"value", acks=1, index=1)
        await asyncio.sleep(1)
        fenced = pb.BrokerRegistrationChange(broker_id=3, fenced=True)
        change = pb.PartitionChange(topic_id=TOPIC_ID, partition_id=0, isr=pb.Replicas(ids=[1, 2]))
        cluster.tell(pb.MetadataRecord(broker_registration_change=fenced), pb.MetadataRecord(partition_change=change))
        await cluster.until(lambda: cluster.brokers[2].log().high_watermark == 1, 1)

    run(scenario)


def test_followers_of_an_idle_partition_learn_what_retention_took() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(2, isr=(1, 2))
        client = await cluster.client()
        await client.produce(b"value", b"value", b"value")
        await asyncio.sleep(2)
        leader, log = cluster.brokers[1], cluster.brokers[1].log()
        manager = leader.manager
        assert manager is not None

        def shorten() -> None:
            assert log.delete_old_segments(2**60)
            manager.log_shortened(log)

        leader.run(shorten)
        await cluster.until(lambda: cluster.brokers[2].log().log_start_offset == 3, 1)
        # Who wants less deleted than is gone already waits for nobody.
        await cluster.until(lambda: low_watermark(manager.partitions[TOPIC_ID, 0]) == 3, 1)

    run(scenario)


def test_followers_find_a_leader_that_moved() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(elsewhere=1)
        client = await cluster.client()
        ack = await client.produce(b"value", timeout_ms=1_000)
        assert ack.error_code == ErrorCode.REQUEST_TIMED_OUT
        cluster.tell(cluster.registration(1))
        assert (await client.produce(b"value", timeout_ms=1_000)).error_code == 0

    run(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_topic_that_syncs_first_survives_a_power_cut_of_every_broker(acks: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(ottla_flush_before_ack="true")
        client = await cluster.client()
        acknowledged = 0
        for number in range(10):
            acknowledged += (await client.produce(b"<%d>" % number, acks=acks)).error_code == 0
        assert acknowledged == 10
        for broker in cluster.brokers.values():
            if acks == -1 or broker.node_id == 1:
                assert broker.log().recovery_point == 10
            broker.node.crash()
        for broker in cluster.brokers.values():
            await broker.restart()
        data = cluster.brokers[1].log().read(0, 1 << 20).data
        assert all(b"<%d>" % number in data for number in range(10))

    run(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_acknowledged_is_lost_while_leaders_change(seed: int) -> None:
    """A producer, and brokers that die one after another; whoever is in the ISR may be elected."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        acknowledged: list[bytes] = []
        stop = asyncio.Event()

        async def keep_producing() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                value = b"<%d>" % number
                try:
                    async with asyncio.timeout(2):
                        client = await cluster.client(cluster.leader())
                        ack = await client.produce(value, timeout_ms=1_000)
                        client.close()
                except (OSError, TimeoutError, asyncio.IncompleteReadError):
                    continue
                if ack.error_code == 0:
                    acknowledged.append(value)

        producing = asyncio.ensure_future(keep_producing())
        rng = cluster.loop.rng("faults")
        for _ in range(4):
            await asyncio.sleep(rng.random() / 2)
            victim = rng.choice(list(cluster.brokers))
            cluster.brokers[victim].kill()
            rest = tuple(member for member in cluster.isr() if member != victim)
            cluster.elect(rest[0], rest)
            await asyncio.sleep(rng.random())
            await cluster.brokers[victim].restart()
            await cluster.until(lambda: len(cluster.isr()) == 3)
        stop.set()
        await producing
        logs = [broker.log().read(0, 1 << 24).data for broker in cluster.brokers.values()]
        leader = cluster.brokers[cluster.leader()].log()
        await cluster.until(lambda: leader.high_watermark == leader.log_end_offset)
        logs = [broker.log().read(0, 1 << 24).data for broker in cluster.brokers.values()]
        assert logs[0] == logs[1] == logs[2]
        assert len(acknowledged) > 20
        assert all(logs[0].count(value) == 1 for value in acknowledged)

    run(scenario, seed)


def test_followers_come_before_clients_at_their_leader() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        assert (await client.produce(b"value")).error_code == 0
        visitors = cluster.brokers[1].network._visitors
        assert sorted(connection.comes_first for connection in visitors) == [False, True, True]

    run(scenario)


@pytest.mark.parametrize("anew", ["another leader", "a hard stop"])
def test_a_follower_that_syncs_first_does_not_begin_anew_with_what_it_has_not_synced(anew: str) -> None:
    """From where it fetches counts as what it has, and a power cut would take it."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(ottla_flush_before_ack="true")
        client, follower = await cluster.client(), cluster.brokers[2]
        follower.node.slowness = 2_000
        await client.produce(b"value", acks=1)
        await cluster.until(lambda: all(each.log().log_end_offset == 1 for each in cluster.brokers.values()))
        assert follower.log().recovery_point == 0
        if anew == "another leader":
            cluster.elect(3, (1, 2, 3))
        else:
            await follower.restart()
        leader = cluster.brokers[cluster.leader()]
        await cluster.until(lambda: leader.log().high_watermark == 1)
        assert follower.log().recovery_point == 1

    run(scenario)
