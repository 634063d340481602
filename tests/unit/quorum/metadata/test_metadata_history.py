"""The log as history: at, blame, diff."""

import pytest

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.history import at, blame, diff
from ottla.quorum.metadata.image import MetadataImage
from tests.unit.quorum.metadata.metadata_records import (
    broker,
    build,
    change,
    config,
    partition,
    topic,
)
from tests.unit.quorum.metadata.metadata_story import STORY


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


def test_a_partition_that_is_as_it_was_again_is_amended() -> None:
    before = build([topic(1), partition(1, 0)])
    after = build(
        [
            topic(1),
            partition(1, 0),
            change(1, 0, isr=pb.Replicas(ids=[1, 2])),
            change(1, 0, isr=pb.Replicas(ids=[1, 2, 3])),
        ]
    )
    text = "leader 1 (epoch 0), in sync 1,2,3"
    assert [tuple(each) for each in diff(before, after)] == [("partition", "topic-1-0", text, "amended")]
