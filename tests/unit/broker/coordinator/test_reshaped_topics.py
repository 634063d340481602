"""Which changes of the metadata make consumer groups look at their topics again."""

from ottla.broker.coordinator.group_coordinator import reshaped
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import TopicView
from tests.unit.broker.handlers.conftest import partition_view

A, B = b"a" * 16, b"b" * 16
VIEW = partition_view((1,), (1,), 1)


def image() -> MetadataImage:
    made = MetadataImage()
    for topic_id, name in ((A, "a"), (B, "b")):
        made.topics_by_id[topic_id] = made.topics_by_name[name] = TopicView(name, topic_id, {0: VIEW, 1: VIEW})
    return made


def test_topics_that_come_go_or_grow_are_others_and_new_leaders_change_nothing() -> None:
    delta = MetadataDelta()
    delta.partitions[A, 0] = VIEW
    assert not reshaped(delta, image())
    delta.partitions[A, 1] = None
    assert reshaped(delta, image()) == {"a"}
    delta.created_topics[B] = "b"
    delta.deleted_topics[b"c" * 16] = TopicView("c", b"c" * 16, {})
    assert reshaped(delta, image()) == {"a", "b", "c"}


def test_a_partition_that_was_made_and_deleted_meanwhile_is_of_no_topic() -> None:
    delta = MetadataDelta()
    delta.partitions[b"c" * 16, 0] = None
    assert not reshaped(delta, image())
