"""Records to image and back, deltas, forks, and the store: all must tell the same story."""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.delta import PIECE_PARTITIONS, MetadataDelta, differences
from ottla.quorum.metadata.image import MetadataImage, UnreadableRecordError
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.metadata.records import image_records
from ottla.quorum.metadata.store import ImageStore, StoreFormatError

Record = pb.MetadataRecord


class DictStore:
    """A `KeyValueStore` in memory."""

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]] = (), files: "dict[str, DictStore] | None" = None) -> None:
        """``files``: what may be restored."""
        self.pairs = dict(pairs)
        self.files = files or {}

    def get(self, key: bytes) -> bytes | None:
        return self.pairs.get(key)

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((key, value) for key, value in self.pairs.items() if key.startswith(prefix)))

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = (), *, durable: bool) -> None:
        for key in deletes:
            self.pairs.pop(key, None)
        self.pairs.update(puts)

    def sync(self) -> None: ...

    def clear(self) -> None:
        self.pairs.clear()

    def copy_to(self, path: str) -> None: ...

    def restore(self, path: str) -> None:
        self.pairs = dict(self.files[path].pairs)

    def close(self) -> None: ...


def topic_id(number: int) -> bytes:
    return b"topic" + number.to_bytes(11)


def broker(broker_id: int, epoch: int = 5, **more: object) -> Record:
    return Record(
        register_broker=pb.RegisterBroker(
            broker_id=broker_id,
            broker_epoch=epoch,
            incarnation_id=bytes([broker_id]) * 16,
            endpoints=[pb.Endpoint(name="PLAINTEXT", host="localhost", port=9092 + broker_id)],
            features=[pb.FeatureRange(name="metadata.version", min_version=25, max_version=30)],
            fenced=True,
            directories=[bytes([broker_id]) * 16],
            **more,  # type: ignore[arg-type]  # keywords of many types
        )
    )


def topic(number: int) -> Record:
    return Record(topic=pb.Topic(name=f"topic-{number}", topic_id=topic_id(number)))


def partition(number: int, index: int) -> Record:
    return Record(
        partition=pb.Partition(
            topic_id=topic_id(number), partition_id=index, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1,
            directories=[bytes([each]) * 16 for each in (1, 2, 3)],
        )
    )  # fmt: skip


def change(number: int, index: int, **fields: object) -> Record:
    body = pb.PartitionChange(topic_id=topic_id(number), partition_id=index, **fields)  # type: ignore[arg-type]  # keywords of many types
    return Record(partition_change=body)


def config(name: str, value: str | None, resource: str = "topic-1") -> Record:
    return Record(config=pb.Config(resource_type=2, resource_name=resource, name=name, value=value))


def build(records: Iterable[Record]) -> MetadataImage:
    image, delta = MetadataImage(), MetadataDelta()
    for record in records:
        image.apply(record, delta)
    return image


def batch(base: int, records: list[Record]) -> CommittedBatch:
    return CommittedBatch(base, base + max(len(records), 1) - 1, 1, 0, [each.SerializeToString() for each in records])


SOME = [
    Record(feature_level=pb.FeatureLevel(name="metadata.version", level=30)),
    broker(1),
    broker(2, rack="b"),
    topic(1),
    partition(1, 0),
    partition(1, 1),
    topic(2),
    partition(2, 0),
    config("retention.ms", "1000"),
    Record(producer_ids=pb.ProducerIds(broker_id=1, broker_epoch=5, next_producer_id=1000)),
    Record(register_controller=pb.RegisterController(controller_id=1, incarnation_id=b"c" * 16, rack="r")),
    Record(register_controller=pb.RegisterController(controller_id=2, incarnation_id=b"d" * 16)),
    Record(unregister_controller=pb.UnregisterController(controller_id=2)),
]


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
            records.append(change(number, rng.randrange(topics[number]), isr=isr, leader=leader))
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


class Recorder:
    def __init__(self, fail: bool = False) -> None:
        self.told: list[tuple[list[str], int]] = []
        self._fail = fail

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.told.append((list(delta.created_topics.values()), image.offset))
        if self._fail:
            raise RuntimeError("planted")


def test_publishers_are_told_everything_first_and_then_changes_even_if_one_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loader = MetadataLoader(DictStore())
    loader.on_commit(batch(0, [topic(1)]))
    failing, good = Recorder(fail=True), Recorder()
    list(loader.introduce(failing))
    list(loader.introduce(good))
    loader.on_commit(batch(1, []))
    loader.on_commit(batch(2, [topic(2), topic(3)]))
    assert good.told == failing.told == [([], 0), (["topic-1"], 0), (["topic-2", "topic-3"], 3)]
    assert "Recorder failed at metadata offset 3" in caplog.text


def begin() -> Record:
    return Record(begin_transaction=pb.BeginTransaction(name="x"))


def end() -> Record:
    return Record(end_transaction=pb.EndTransaction())


def abort() -> Record:
    return Record(abort_transaction=pb.AbortTransaction(reason="x"))


def test_a_transaction_takes_effect_at_its_end_and_in_one_piece() -> None:
    loader, recorder = MetadataLoader(DictStore()), Recorder()
    list(loader.introduce(recorder))
    loader.on_commit(batch(0, [topic(1)]))
    loader.on_commit(batch(1, [begin(), topic(2), partition(2, 0)]))
    loader.on_commit(batch(4, [partition(2, 1)]))
    assert (list(loader.image.topics_by_name), loader.next_offset, loader.in_transaction) == (["topic-1"], 1, True)
    loader.on_commit(batch(5, [partition(2, 2), end(), topic(3)]))
    assert (len(loader.image.topics_by_name["topic-2"].partitions), loader.in_transaction) == (3, False)
    assert recorder.told[1:] == [(["topic-1"], 0), (["topic-2", "topic-3"], 7)]


def test_a_restart_inside_a_transaction_reads_it_again() -> None:
    store = DictStore()
    loader = MetadataLoader(store)
    loader.on_commit(batch(0, [topic(1)]))
    loader.on_commit(batch(1, [begin(), topic(2)]))
    again = MetadataLoader(store)
    assert again.next_offset == 1
    again.on_commit(batch(1, [begin(), topic(2)]))
    again.on_commit(batch(3, [end()]))
    assert list(again.image.topics_by_name) == ["topic-1", "topic-2"]


def test_an_aborted_transaction_leaves_nothing() -> None:
    loader = MetadataLoader(DictStore())
    loader.on_commit(batch(0, [begin(), topic(2)]))
    loader.on_commit(batch(2, [abort(), topic(1)]))
    assert (list(loader.image.topics_by_name), loader.next_offset) == (["topic-1"], 4)


def test_an_aborted_change_of_what_was_there_leaves_it_as_it_was() -> None:
    store = DictStore()
    loader = MetadataLoader(store)
    loader.on_commit(batch(0, SOME))
    before = loader.image.fork()
    loader.on_commit(batch(20, [begin(), partition(1, 7), change(1, 0, leader=3), config("retention.ms", None)]))
    assert loader.image == before, "not before its end"
    loader.on_commit(batch(24, [abort()]))
    assert loader.image == before
    loader.on_commit(batch(25, [change(1, 0, leader=2)]))
    assert loader.image.topics_by_name["topic-1"].partitions[0].leader == 2
    assert MetadataLoader(store).image == loader.image


def test_a_transaction_comes_to_the_same_as_its_records_alone() -> None:
    store, parts = DictStore(), [[begin(), *SOME[:4]], SOME[4:8], [*SOME[8:], end()]]
    loader = MetadataLoader(store)
    held = loader.image
    offset = 0
    for records in parts:
        loader.on_commit(batch(offset, records))
        offset += len(records)
    assert loader.image == build(SOME)
    assert loader.image is held, "whoever holds the image keeps it"
    assert MetadataLoader(store).image == loader.image


@pytest.mark.parametrize("records", [[begin(), begin()], [end()], [abort()]])
def test_marks_that_make_no_transaction_are_unreadable(records: list[Record]) -> None:
    with pytest.raises(UnreadableRecordError):
        MetadataLoader(DictStore()).on_commit(batch(0, records))


def test_a_snapshot_replaces_what_was_there() -> None:
    files = {"received": DictStore()}
    ImageStore(files["received"]).replace(build([topic(5), partition(5, 0)]))
    store = DictStore(files=files)
    loader, recorder = MetadataLoader(store, lambda path: files[path]), Recorder()
    loader.on_commit(batch(0, SOME))
    image = loader.image
    list(loader.introduce(recorder))
    asyncio.run(loader.on_snapshot("received", 100, 7))
    assert loader.image is image
    assert (list(image.topics_by_name), image.offset, image.epoch) == (["topic-5"], 99, 7)
    assert recorder.told[-1] == (["topic-5"], 99)
    assert MetadataLoader(store).next_offset == 100
    loader.on_commit(batch(100, [topic(6)]))
    assert list(MetadataLoader(store).image.topics_by_name) == ["topic-5", "topic-6"]


def large_image(topics: int = 5, partitions: int = 900) -> MetadataImage:
    records = [topic(number) for number in range(1, topics + 1)]
    records += [partition(number, index) for number in range(1, topics + 1) for index in range(partitions)]
    return build(records)


class Turns:
    """Counts the turns of the loop, and asks in each of them."""

    def __init__(self, ask: Callable[[], None] = lambda: None) -> None:
        self.count = 0
        self._ask = ask
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self.count += 1
        self._ask()
        asyncio.get_running_loop().call_soon(self._turn)


def test_a_large_snapshot_is_taken_over_turns_of_the_loop_and_replaces_the_image_at_once() -> None:
    files = {"received": DictStore()}
    ImageStore(files["received"]).replace(large_image())
    loader, recorder = MetadataLoader(DictStore(files=files), lambda path: files[path]), Recorder()
    loader.on_commit(batch(0, [topic(9)]))
    list(loader.introduce(recorder))
    seen: list[tuple[int, int]] = []

    def look() -> None:
        count = sum(len(each.partitions) for each in loader.image.topics_by_id.values())
        seen.append((count, loader.published_offset))

    async def scenario() -> None:
        turns = Turns(look)
        await loader.on_snapshot("received", 100, 7)
        assert turns.count >= 10, "4500 partitions are read, and told of, a thousand at a time"

    asyncio.run(scenario())
    assert list(dict.fromkeys(seen)) == [(0, 0), (4500, 0), (4500, 99)], (
        "nothing in between; published when all was told"
    )
    assert loader.published_offset == 99
    told = [name for names, offset in recorder.told if offset == 99 for name in names]
    assert sorted(told) == [f"topic-{number}" for number in range(1, 6)]


@pytest.mark.parametrize("position", [100, 200], ids=["where it should end", "later"])
def test_a_snapshot_that_goes_too_far_changes_nothing(position: int) -> None:
    image = build([topic(5)])
    image.offset = position
    files = {"received": DictStore()}
    ImageStore(files["received"]).replace(image)
    store = DictStore(files=files)
    loader = MetadataLoader(store, lambda path: files[path])
    loader.on_commit(batch(0, [topic(1)]))
    with pytest.raises(ValueError, match="ends at"):
        asyncio.run(loader.on_snapshot("received", 100, 7))
    assert list(loader.image.topics_by_name) == list(MetadataLoader(store).image.topics_by_name) == ["topic-1"]


def test_who_is_introduced_is_told_of_what_is_committed_meanwhile() -> None:
    loader, told = MetadataLoader(DictStore()), MetadataDelta()

    class Publisher:
        def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
            told.partitions.update(delta.partitions)
            told.deleted_topics.update(delta.deleted_topics)

    for number in (1, 2, 3):
        loader.on_commit(batch(number * 2000, [topic(number), *(partition(number, index) for index in range(1500))]))
    pieces = loader.introduce(Publisher())
    next(pieces)
    loader.on_commit(
        batch(8000, [topic(4), partition(4, 0), Record(remove_topic=pb.RemoveTopic(topic_id=topic_id(3)))])
    )
    list(pieces)
    assert (topic_id(4), 0) in told.partitions
    assert list(told.deleted_topics) == [topic_id(3)]
    assert sum(key[0] in (topic_id(1), topic_id(2)) for key in told.partitions) == 3000


def test_differences_come_in_bounded_pieces_that_together_are_the_whole() -> None:
    before, after = large_image(), large_image(topics=7, partitions=1100)
    after.apply(Record(remove_topic=pb.RemoveTopic(topic_id=topic_id(2))), MetadataDelta())
    pieces = list(differences(before, after))
    assert max(len(each.partitions) for each in pieces) <= PIECE_PARTITIONS
    whole = MetadataDelta.between(before, after)
    assert (list(whole.deleted_topics), sorted(whole.created_topics)) == ([topic_id(2)], [topic_id(6), topic_id(7)])
    assert len(whole.partitions) == 900 + 4 * 200 + 2 * 1100


def test_waiting_for_an_offset_ends_when_the_image_stands_there() -> None:
    loader = MetadataLoader(DictStore())
    called: list[str] = []

    def note(word: str) -> Callable[[], None]:
        return lambda: called.append(word)

    loader.on_reached(1, note("one"))
    loader.on_reached(5, note("five"))
    loader.on_commit(batch(0, [topic(1), topic(2)]))
    loader.on_reached(1, note("at once"))
    assert called == ["one", "at once"]


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
