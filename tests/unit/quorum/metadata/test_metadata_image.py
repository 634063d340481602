"""The image of the metadata: what records make of it, forks, differences, and the store that keeps it."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.delta import PIECE_PARTITIONS, MetadataDelta, differences
from ottla.quorum.metadata.families.settings import config_record
from ottla.quorum.metadata.image import UnreadableRecordError
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.metadata.store import ImageStore, StoreFormatError
from ottla.quorum.metadata.views import GROUP_RESOURCE
from ottla.runtime.lmdb_store import LmdbStore
from tests.unit.quorum.metadata.metadata_records import (
    SOME,
    DictStore,
    Record,
    batch,
    broker,
    build,
    change,
    config,
    image_records,
    large_image,
    partition,
    topic,
    topic_id,
)


def story(seed: int, length: int) -> list[Record]:
    """A valid history, as a controller might write it."""
    rng = random.Random(seed)
    topics: dict[int, int] = {}
    brokers: dict[int, int] = {}
    producer_id = 0
    records: list[Record] = []
    for step in range(length):
        kind = rng.randrange(9)
        if kind == 0:
            number = step + 1
            topics[number] = rng.randint(1, 4)
            records += [topic(number), *(partition(number, index) for index in range(topics[number]))]
        elif kind == 1 and topics:
            number = rng.choice(list(topics))
            del topics[number]
            records.append(Record(remove_topic=pb.RemoveTopic(topic_id=topic_id(number))))
        elif kind == 2:
            which = rng.randint(1, 3)
            brokers[which] = step
            records.append(broker(which, step))
        elif kind == 3 and brokers:
            which = rng.choice(list(brokers))
            body = pb.BrokerRegistrationChange(broker_id=which, broker_epoch=brokers[which], fenced=rng.random() < 0.5)
            records.append(Record(broker_registration_change=body))
        elif kind == 4 and brokers:
            which = rng.choice(list(brokers))
            gone = pb.UnregisterBroker(broker_id=which, broker_epoch=brokers.pop(which))
            records.append(Record(unregister_broker=gone))
        elif kind in (5, 6) and topics:
            number = rng.choice(list(topics))
            isr = pb.Replicas(ids=rng.sample([1, 2, 3], rng.randint(1, 3)))
            leader = rng.choice([None, -1, 1, 2])
            some = [
                pb.Replicas(ids=rng.sample([1, 2, 3], rng.randint(0, 2))) if rng.random() < 0.5 else None for _ in "ab"
            ]
            index = rng.randrange(topics[number])
            eligible = {"eligible_leader_replicas": some[0], "last_known_elr": some[1]}
            records.append(change(number, index, isr=isr, leader=leader, **eligible))
        elif kind == 7 and topics and rng.random() < 0.3:
            name = rng.choice(["", f"topic-{rng.choice(list(topics))}"])
            records.append(Record(clear_elr=pb.ClearElr(topic_name=name)))
        elif kind == 7:
            value = rng.choice([None, "1", "2"])
            number = rng.choice(list(topics)) if topics else 0
            records.append(config(rng.choice("abc"), value, f"topic-{number}"))
        else:
            producer_id += 1000
            ids = pb.ProducerIds(broker_id=1, broker_epoch=1, next_producer_id=producer_id)
            records.append(Record(producer_ids=ids))
    return records


stories = st.builds(story, st.integers(0, 10**6), st.integers(0, 60))


@given(stories)
@settings(max_examples=60, deadline=None)
def test_an_image_written_as_records_reads_back_equal(records: list[Record]) -> None:
    image = build(records)
    assert build(image_records(image)) == image


@given(stories, st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_a_store_reopened_in_the_middle_ends_where_a_whole_replay_does(records: list[Record], cut: int) -> None:
    store = DictStore()
    loader = MetadataLoader(store)
    for offset, record in enumerate(records[:cut]):
        loader.on_commit(batch(offset, [record]))
    again = MetadataLoader(store)
    assert again.next_offset == min(cut, len(records))
    for offset, record in list(enumerate(records))[again.next_offset :]:
        again.on_commit(batch(offset, [record]))
    assert again.image == build(records)
    assert ImageStore(store).load() == build(records)


@given(stories, stories)
@settings(max_examples=60, deadline=None)
def test_a_fork_and_its_origin_do_not_see_each_other(before: list[Record], after: list[Record]) -> None:
    image = build(before)
    expected = build(image_records(image))
    fork = image.fork()
    fork_story = [topic(99_999), partition(99_999, 0), *(each for each in after if each.WhichOneof("body") == "config")]
    for number in list(image.topics_by_id.values()):
        fork_story += [
            Record(partition_change=pb.PartitionChange(topic_id=number.id, partition_id=0, leader=-1)),
            Record(remove_topic=pb.RemoveTopic(topic_id=number.id)),
        ]
    for record in fork_story:
        fork.apply(record, MetadataDelta())
    assert image == expected
    for number in list(image.topics_by_id.values()):
        change_of_origin = pb.PartitionChange(topic_id=number.id, partition_id=0, leader=3)
        image.apply(Record(partition_change=change_of_origin), MetadataDelta())
    assert list(fork.topics_by_name) == ["topic-99999"]


@given(stories, stories)
@settings(max_examples=60, deadline=None)
def test_the_difference_of_two_images_turns_one_into_the_other_in_the_store(
    first: list[Record], second: list[Record]
) -> None:
    before, after = build(first), build(second)
    store = DictStore()
    ImageStore(store).replace(before)
    if set(before.controllers) - set(after.controllers):
        return  # controllers are never removed
    if before.next_producer_id > after.next_producer_id:
        return  # and producer ids never go back
    ImageStore(store).write(MetadataDelta.between(before, after), after)
    assert ImageStore(store).load() == after


def test_epochs_rise_on_replay() -> None:
    image = build(SOME)

    def applied(**fields: object) -> tuple[int, int]:
        image.apply(change(1, 0, **fields), MetadataDelta())
        view = image.topics_by_name["topic-1"].partitions[0]
        return view.leader_epoch, view.partition_epoch

    assert applied(isr=pb.Replicas(ids=[1])) == (0, 1)
    assert applied(leader=1) == (1, 2), "a leader that is named raises the leader epoch, even when it is the same"
    assert applied(leader=-1) == (2, 3)
    assert image.topics_by_name["topic-1"].partitions[0].isr == (1,)


def test_a_delta_holds_what_was_there_before() -> None:
    image, delta = build(SOME), MetadataDelta()
    before = image.topics_by_name["topic-1"].partitions[0]
    image.apply(change(1, 0, leader=2), delta)
    image.apply(change(1, 0, leader=3), delta)
    image.apply(topic(3), delta)
    image.apply(partition(3, 0), delta)
    assert delta.partitions == {(topic_id(1), 0): before, (topic_id(3), 0): None}
    assert delta.created_topics == {topic_id(3): "topic-3"}
    image.apply(Record(remove_topic=pb.RemoveTopic(topic_id=topic_id(1))), delta)
    assert list(delta.deleted_topics) == [topic_id(1)]
    assert (2, "topic-1") in delta.configs, "a topic's settings go with it"
    assert (2, "topic-1") not in image.configs


@pytest.mark.parametrize(
    "record",
    [
        Record(),
        topic(1),
        partition(7, 0),
        change(1, 9, leader=1),
        Record(unregister_broker=pb.UnregisterBroker(broker_id=1, broker_epoch=4)),
        Record(broker_registration_change=pb.BrokerRegistrationChange(broker_id=9, broker_epoch=4)),
        Record(remove_topic=pb.RemoveTopic(topic_id=topic_id(7))),
        Record(producer_ids=pb.ProducerIds(next_producer_id=1000)),
    ],
)
def test_a_record_that_contradicts_the_image_is_refused(record: Record) -> None:
    with pytest.raises(UnreadableRecordError):
        build(SOME).apply(record, MetadataDelta())


def test_differences_come_in_bounded_pieces_that_together_are_the_whole() -> None:
    before, after = large_image(), large_image(topics=7, partitions=1100)
    after.apply(Record(remove_topic=pb.RemoveTopic(topic_id=topic_id(2))), MetadataDelta())
    pieces = list(differences(before, after))
    assert max(len(each.partitions) for each in pieces) <= PIECE_PARTITIONS
    whole = MetadataDelta.between(before, after)
    assert (list(whole.deleted_topics), sorted(whole.created_topics)) == ([topic_id(2)], [topic_id(6), topic_id(7)])
    assert len(whole.partitions) == 900 + 4 * 200 + 2 * 1100


def test_a_store_of_another_format_is_refused() -> None:
    store = DictStore({b"o": b"\x63" + bytes(16)}.items())
    with pytest.raises(StoreFormatError, match="format 99"):
        MetadataLoader(store)


def test_a_stored_partition_comes_back_whether_it_is_like_the_others_or_not() -> None:
    """Partitions with the same replicas mostly have the same directories, and share them in memory."""
    loader = MetadataLoader(store := DictStore())
    moved = pb.Directories(ids=[b"another-place-01", bytes([2]) * 16, bytes([3]) * 16])
    records = [
        topic(1),
        *(partition(1, index) for index in range(3)),
        change(1, 1, isr=pb.Replicas(ids=[2, 3])),
        change(1, 2, directories=moved),
    ]
    loader.on_commit(CommittedBatch(0, len(records) - 1, 1, 0, [record.SerializeToString() for record in records], ""))
    restarted = MetadataLoader(store).image

    assert restarted == loader.image
    views = restarted.topics_by_name["topic-1"].partitions
    assert views[0].replicas is views[1].replicas is views[0].isr
    assert views[0].directories is views[1].directories


def test_settings_of_a_group_with_a_very_long_name_are_stored(tmp_path: Path) -> None:
    setting, names = "consumer.session.timeout.ms", ["g" * 10_000 + each for each in "12"]
    loader = MetadataLoader(store := LmdbStore(str(tmp_path / "image")))
    loader.on_commit(batch(0, [config_record(GROUP_RESOURCE, name, setting, "50000") for name in names]))
    loader.on_commit(batch(2, [config_record(GROUP_RESOURCE, names[0], setting, None)]))
    loader.sync()
    assert ImageStore(store).load().configs == {(GROUP_RESOURCE, names[1]): {setting: "50000"}}
    loader.close()
