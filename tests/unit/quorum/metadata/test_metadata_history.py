"""The log as history: at, blame, diff."""

import pytest

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.history import at, blame, diff
from ottla.quorum.metadata.image import MetadataImage
from tests.unit.quorum.metadata.test_metadata_image import (
    abort,
    begin,
    broker,
    build,
    change,
    config,
    end,
    partition,
    topic,
    topic_id,
)


def log(*batches: tuple[str, list[pb.MetadataRecord]]) -> list[CommittedBatch]:
    """Batches with their causes, a second apart."""
    result, offset = [], 0
    for number, (cause, records) in enumerate(batches):
        data = [each.SerializeToString() for each in records]
        result.append(CommittedBatch(offset, offset + len(records) - 1, 3, 1000 * number, data, cause))
        offset += len(records)
    return result


STORY = log(
    ("register_broker", [broker(1)]),
    ("create_topics by ann", [topic(1), partition(1, 0), partition(1, 1)]),
    ("the session of broker 1 is over", [change(1, 0, leader=2, isr=pb.Replicas(ids=[2, 3])), change(1, 1, leader=2)]),
    ("alter_partition by broker 2", [change(1, 0, isr=pb.Replicas(ids=[2, 3, 1]))]),
    ("leaders return", [change(1, 0, leader=1)]),
    ("large topic", [begin(), topic(2), partition(2, 0)]),
    ("large topic", [partition(2, 1), end()]),
    ("half a topic", [begin(), topic(3)]),
    ("activation", [abort()]),
    ("delete_topics by bob", [pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=topic_id(1)))]),
)


def test_blame_tells_a_partitions_whole_life_and_why() -> None:
    rows = [(row.offset, row.time_ms, row.cause, row.what) for row in blame(STORY, "topic-1", 0)]
    assert rows == [
        (2, 1000, "create_topics by ann", "created on 1,2,3, led by 1"),
        (4, 2000, "the session of broker 1 is over", "leader 1 -> 2, out of sync: 1"),
        (6, 3000, "alter_partition by broker 2", "in sync again: 1"),
        (7, 4000, "leaders return", "leader 2 -> 1"),
        (16, 9000, "delete_topics by bob", "deleted"),
    ]


def test_blame_has_the_partition_as_it_was_then() -> None:
    views = [row.partition for row in blame(STORY, "topic-1", 0)]
    assert [(view.leader, view.leader_epoch, view.partition_epoch) if view else None for view in views] == [
        (1, 0, 0),
        (2, 1, 1),
        (2, 1, 2),
        (1, 2, 3),
        None,
    ]


def test_blame_sees_transactions_as_they_take_effect() -> None:
    assert [row.offset for row in blame(STORY, "topic-2", 1)] == [11]
    assert blame(STORY, "topic-3", 0) == []


@pytest.mark.parametrize(
    ("offset", "topics"),
    [(0, []), (2, []), (3, ["topic-1"]), (10, ["topic-1"]), (12, ["topic-1", "topic-2"]), (16, ["topic-2"])],
)
def test_the_image_at_an_offset_is_what_was_committed_then(offset: int, topics: list[str]) -> None:
    assert list(at(STORY, offset).topics_by_name) == topics


def test_history_goes_on_from_a_snapshot() -> None:
    start = at(STORY, 5)
    start.offset = 5
    assert at(STORY[3:], 7, start) == at(STORY, 7)
    assert start.topics_by_name["topic-1"].partitions[0].partition_epoch == 1, "the snapshot is left as it is"
    assert [row.offset for row in blame(STORY, "topic-1", 0, start)] == [6, 7, 16]


def test_a_difference_is_told_in_words() -> None:
    before = build([broker(1), topic(1), partition(1, 0), topic(2), config("a", "1")])
    fence = pb.BrokerRegistrationChange(broker_id=1, broker_epoch=5, fenced=False)
    after = build(
        [
            pb.MetadataRecord(feature_level=pb.FeatureLevel(name="metadata.version", level=30)),
            broker(1),
            pb.MetadataRecord(broker_registration_change=fence),
            topic(1),
            partition(1, 0),
            change(1, 0, leader=-1, isr=pb.Replicas(ids=[2])),
            topic(3),
            config("a", "2"),
        ]
    )
    assert [tuple(each) for each in diff(before, after)] == [
        ("feature", "metadata.version", "", "30"),
        ("broker", "1", "epoch 5, fenced", "epoch 5, in service"),
        ("topic", "topic-2", "0 partitions", ""),
        ("topic", "topic-3", "", "0 partitions"),
        ("partition", "topic-1-0", "leader 1 (epoch 0), in sync 1,2,3", "leader none (epoch 1), in sync 2 of 1,2,3"),
        ("setting", "topic-1: a", "1", "2"),
    ]
    assert diff(before, before) == []
    assert diff(MetadataImage(), MetadataImage()) == []
