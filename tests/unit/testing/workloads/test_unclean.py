"""Which elections were unclean is read from the cluster's own metadata."""

from ottla.proto import metadata_pb2 as pb
from ottla.testing.chaos.workloads.unclean import Election, elections
from tests.unit.quorum.metadata.metadata_records import change, partition, topic
from tests.unit.quorum.metadata.metadata_story import log

RECOVERING = 1


def ids(*brokers: int) -> pb.Replicas:
    return pb.Replicas(ids=brokers)


MADE = ("create_topics", [topic(1), partition(1, 0)])
ALONE = ("followers are gone", [change(1, 0, isr=ids(1))])


def test_a_leader_that_was_not_in_sync_is_an_unclean_one() -> None:
    elected = change(1, 0, leader=3, isr=ids(3), leader_recovery_state=RECOVERING)
    assert list(elections(log(MADE, ALONE, ("unclean", [elected])))) == [Election("topic-1", 0, 1, 2000)]


def test_a_leader_that_was_in_sync_is_none() -> None:
    assert list(elections(log(MADE, ("the session is over", [change(1, 0, leader=2, isr=ids(2, 3))])))) == []


def test_one_that_recovers_and_is_joined_by_others_is_told_once() -> None:
    elected = change(1, 0, leader=3, isr=ids(3), leader_recovery_state=RECOVERING)
    recovered = change(1, 0, leader_recovery_state=0)
    joined = change(1, 0, isr=ids(3, 1))
    assert len(list(elections(log(MADE, ALONE, ("a", [elected]), ("b", [recovered]), ("c", [joined]))))) == 1


def test_a_second_one_while_the_first_recovers_is_told_too() -> None:
    one = change(1, 0, leader=3, isr=ids(3), leader_recovery_state=RECOVERING)
    gone = change(1, 0, leader=-1)
    other = change(1, 0, leader=2, isr=ids(2), leader_recovery_state=RECOVERING)
    assert [each.leader_epoch for each in elections(log(MADE, ALONE, ("a", [one]), ("b", [gone]), ("c", [other])))] == [
        1,
        3,
    ]
