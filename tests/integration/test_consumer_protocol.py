"""Groups of the newer protocol (KIP-848), with clients that know nothing of us."""

import subprocess
import sys
import time
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from ottla.testing.processes import ProcessCluster
from tests.integration.conftest import PARTITIONS, RECORDS

PATIENCE_S = 60


class Member:
    """A consumer, and what it has been told."""

    def __init__(self, cluster: ProcessCluster, topic: str, **settings: object) -> None:
        self.read: list[int] = []
        self.mine: set[int] = set()
        self.lost: list[int] = []
        """Partitions that it was told to give up, in order."""
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": topic,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
            | {name.replace("_", "."): value for name, value in settings.items()}
        )
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.mine |= {each.partition for each in partitions}
        self.consumer.incremental_assign(partitions)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.lost += [each.partition for each in partitions]
        self.mine -= {each.partition for each in partitions}
        self.consumer.incremental_unassign(partitions)

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None:
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            self.read.append(int(value))


def poll_until(members: list[Member], is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s, [(sorted(each.mine), len(each.read)) for each in members]
        for each in members:
            each.poll()
        taken = [partition for each in members for partition in each.mine]
        assert len(taken) == len(set(taken)), f"two read the same: {taken}"


def test_members_share_and_only_what_moves_stops(cluster: ProcessCluster, filled: str) -> None:
    first = Member(cluster, filled)
    poll_until([first], lambda: len(first.read) == RECORDS)
    first.consumer.commit(asynchronous=False)
    second = Member(cluster, filled)
    both = [first, second]
    poll_until(both, lambda: sorted(len(each.mine) for each in both) == [2, 2])
    assert len(first.lost) == PARTITIONS // 2, "the other two were never interrupted"
    assert not second.lost
    first.consumer.close()
    poll_until([second], lambda: len(second.mine) == PARTITIONS)
    assert not second.lost, "what it had it kept"
    assert not second.read, "all was committed"
    second.consumer.close()


CONSUMES_UNTIL_KILLED = """
import sys
from confluent_kafka import Consumer
servers, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "group.protocol": "consumer"})
consumer.subscribe([topic])
while True:
    consumer.poll(0.1)
    if consumer.assignment():
        print("reads", flush=True)
"""


def test_what_a_member_that_is_killed_had_goes_to_the_others_and_new_partitions_too(
    cluster: ProcessCluster, filled: str
) -> None:
    words = [sys.executable, "-c", CONSUMES_UNTIL_KILLED, cluster.bootstrap_servers, filled]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        member = Member(cluster, filled)
        poll_until([member], lambda: len(member.mine) == PARTITIONS // 2)
        kept = set(member.mine)
        other.kill()
    poll_until([member], lambda: len(member.mine) == PARTITIONS)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_partitions([NewPartitions(filled, PARTITIONS + 2)])[filled].result(60)
    poll_until([member], lambda: len(member.mine) == PARTITIONS + 2)
    assert kept.isdisjoint(member.lost)
    member.consumer.close()


def test_a_static_member_comes_back_to_its_partitions(cluster: ProcessCluster, filled: str) -> None:
    one, two = (Member(cluster, filled, group_instance_id=each) for each in ("one", "two"))
    poll_until([one, two], lambda: len(one.mine) == len(two.mine) == 2)
    mine = set(one.mine)
    one.consumer.close()
    again = Member(cluster, filled, group_instance_id="one")
    poll_until([again, two], lambda: again.mine == mine)
    assert not [each for each in two.lost if each not in mine]
    again.consumer.close()
    two.consumer.close()
