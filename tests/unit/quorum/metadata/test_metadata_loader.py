"""Who publishes from the metadata log: order, transactions, snapshots."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage, UnreadableRecordError
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.metadata.store import ImageStore
from ottla.quorum.snapshots.image_fit import BEGINNING
from ottla.runtime.lmdb_store import LmdbStore
from tests.unit.quorum.metadata.metadata_records import (
    SOME,
    DictStore,
    Record,
    abort,
    batch,
    begin,
    build,
    change,
    config,
    end,
    large_image,
    partition,
    topic,
    topic_id,
)


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


def test_a_snapshot_whose_file_is_gone_changes_nothing(tmp_path: Path) -> None:
    """Whoever opens a store that is not there makes an empty one: nobody may take that for a cluster without topics."""
    store = DictStore()
    loader = MetadataLoader(store, LmdbStore)
    loader.on_commit(batch(0, [topic(1)]))
    with pytest.raises(ValueError, match="holds nothing"):
        asyncio.run(loader.on_snapshot(f"{tmp_path}/removed.checkpoint", 100, 7))
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


def test_what_the_store_held_counts_as_reached_once_it_is_confirmed() -> None:
    """It may be of a history that is gone, and a broker that acted on it would set logs aside."""
    store = DictStore()
    MetadataLoader(store).on_commit(batch(0, [topic(1), topic(2)]))
    loader, called = MetadataLoader(store), list[str]()
    loader.on_reached(1, lambda: called.append("one"))
    assert (called, loader.confirmed_offset, loader.published_offset) == ([], -1, 1)
    loader.on_confirmed()
    assert (called, loader.confirmed_offset) == (["one"], 1)


def test_an_image_of_another_history_gives_way_to_nothing() -> None:
    store = DictStore()
    loader, recorder = MetadataLoader(store), Recorder()
    loader.on_commit(batch(0, SOME))
    loader.on_commit(batch(len(SOME), [begin()]))
    image = loader.image
    list(loader.introduce(recorder))
    asyncio.run(loader.on_snapshot(None, 0, -1))
    assert loader.image is image
    assert image == MetadataImage()
    assert (loader.applied, MetadataLoader(store).applied) == (BEGINNING, BEGINNING)
    assert recorder.told[-1] == ([], -1)
    assert not loader.in_transaction
    loader.on_commit(batch(0, [topic(6)]))
    assert list(MetadataLoader(store).image.topics_by_name) == ["topic-6"]
