"""A log directory that comes back holds old copies of what was made anew meanwhile: one counts, and the others are kept."""

import errno
from random import Random

import pytest

from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import MetaProperties
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.runtime.errors import KafkaError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from tests.unit.log.conftest import NOW_MS, MakeBatch

NAME = TopicPartition("flights", 0)
TOPIC, EARLIER = bytes(range(16)), bytes(range(1, 17))
IDS = {"/a": b"A" * 16, "/b": b"B" * 16}
SETTINGS = ManagerSettings(cluster_id="c", node_id=1, free_bytes_floor=0)


class Node:
    """Its directories are filled one at a time, as if the other were away."""

    def __init__(self, make_batch: MakeBatch) -> None:
        self.platter = Platter.seeded(7)
        self._make_batch = make_batch
        disk = SimulatedDisk(self.platter)
        for path, directory_id in IDS.items():
            disk.make_directories(path)
            MetaProperties("c", 1, directory_id).write(disk, path)

    def start(self, *paths: str) -> LogManager:
        self.platter.close_sessions()
        manager = LogManager(SimulatedDisk(self.platter), paths or tuple(IDS), LogConfig(), SETTINGS, Random(3))
        manager.open_all(NOW_MS)
        return manager

    def fill(self, path: str, *epochs: int, topic_id: bytes = TOPIC, clean: bool = True) -> None:
        """A log there with a record of each of these leader epochs."""
        manager = self.start(path)
        log = manager.get_or_create(NAME, LogConfig(), topic_id, IDS[path], now_ms=NOW_MS)
        for epoch in epochs:
            log.append_as_leader(self._make_batch(text=path), epoch, NOW_MS)
        if clean:
            manager.close()

    def fill_stable(self, path: str, epoch: int, *, high_watermark: int, start: int) -> None:
        """A log there with 4 records, all stable and some of them deleted, as the checkpoints say; the process is killed."""
        manager = self.start(path)
        log = manager.get_or_create(NAME, LogConfig(), TOPIC, IDS[path], now_ms=NOW_MS)
        for _ in range(4):
            log.append_as_leader(self._make_batch(text=path), epoch, NOW_MS)
        log.flush()
        log.set_high_watermark(high_watermark)
        log.advance_log_start(start)
        manager.checkpoints.save_points()
        manager.checkpoints.save_high_watermarks()

    def found(self, place: str, topic_id: bytes = TOPIC, *, is_new: bool = False) -> tuple[LogManager, Log]:
        manager = self.start()
        return manager, manager.get_or_create(NAME, LogConfig(), topic_id, IDS.get(place), now_ms=NOW_MS, is_new=is_new)


@pytest.fixture
def node(make_batch: MakeBatch) -> Node:
    return Node(make_batch)


def strays(manager: LogManager) -> list[str]:
    return [path for path in IDS if any(name.endswith("-stray") for name in manager.disk.list_directory(path))]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("place", ["/a", "/b", "nowhere"])
def test_the_copy_that_is_further_counts_wherever_the_metadata_says_it_lies(
    node: Node, place: str, clean: bool
) -> None:
    node.fill("/a", 3, 3, 3, clean=clean)
    node.fill("/b", 3, 3, 5, clean=clean)
    manager, log = node.found(place)
    assert (log.root.path, strays(manager)) == ("/b", ["/a"])
    assert [root.partitions for root in manager.roots] == [0, 1]


def test_of_one_epoch_the_longer_copy_counts(node: Node) -> None:
    node.fill("/a", 3, 3, 3)
    node.fill("/b", 3, 3)
    assert node.found("/b")[1].root.path == "/a"


@pytest.mark.parametrize("place", ["/a", "/b"])
def test_between_equals_the_metadata_decides(node: Node, place: str) -> None:
    node.fill("/a", 3, 3)
    node.fill("/b", 3, 3)
    manager, log = node.found(place)
    assert log.root.path == place
    assert strays(manager) == [path for path in IDS if path != place]


def test_a_copy_of_an_earlier_topic_counts_for_nothing(node: Node) -> None:
    node.fill("/a", 3, 3, 9, topic_id=EARLIER)
    node.fill("/b", 3)
    manager, log = node.found("/a")
    assert (log.root.path, log.log_end_offset, strays(manager)) == ("/b", 1, ["/a"])


def test_what_is_nobodys_is_kept_wherever_it_lies(node: Node) -> None:
    node.fill("/a", 3)
    node.fill("/b", 3, 3)
    manager = node.start()
    for log in manager.strays(lambda name, topic_id: False):
        manager.set_aside(log)
    assert strays(manager) == ["/a", "/b"]
    assert manager.logs == {}
    assert [root.partitions for root in manager.roots] == [0, 0]


@pytest.mark.parametrize("nobodys", [(TOPIC, EARLIER), (EARLIER,)])
def test_a_name_whose_strays_were_set_aside_is_used_again(node: Node, nobodys: tuple[bytes, ...]) -> None:
    node.fill("/a", 3, topic_id=EARLIER)
    node.fill("/b", 3, 3)
    manager = node.start()
    for log in manager.strays(lambda name, topic_id: topic_id not in nobodys):
        manager.set_aside(log)
    log = manager.get_or_create(NAME, LogConfig(), b"N" * 16, IDS["/a"], now_ms=NOW_MS)
    assert (log.root.path, log.log_end_offset, strays(manager)) == ("/a", 0, ["/a", "/b"])
    assert [root.failure for root in manager.roots] == [None, None]


def test_until_it_is_known_which_counts_both_stay(node: Node) -> None:
    """The process may end before it has read the metadata."""
    node.fill("/a", 3)
    node.fill("/b", 3, 3)
    node.start().close()
    manager, log = node.found("/b")
    assert (log.root.path, log.log_end_offset, strays(manager)) == ("/b", 2, ["/a"])


@pytest.mark.parametrize("clean", [False, True], ids=["kill", "stop"])
def test_until_it_is_known_which_counts_what_is_written_about_both_stays(node: Node, clean: bool) -> None:
    """Nobody can tell for as long as the quorum is away."""
    node.fill_stable("/a", 3, high_watermark=2, start=1)
    node.fill_stable("/b", 5, high_watermark=4, start=2)
    manager = node.start()
    for log in list(manager.logs.values()):
        log.set_high_watermark(3)  # one moves, and so the file is written
    manager.checkpoints.save_points()
    manager.checkpoints.save_high_watermarks()
    if clean:
        manager.close()
    _, log = node.found("/b")
    assert (log.root.path, log.log_start_offset, log.high_watermark, log.recovery_point) == ("/b", 2, 4, 4)


def test_the_next_start_finds_one(node: Node) -> None:
    node.fill("/a", 3)
    node.fill("/b", 3, 3)
    node.found("/b")[0].close()
    manager = node.start()
    assert [log.directory for log in manager.logs.values()] == ["/b/flights-0"]


def test_an_old_copy_does_not_stand_for_one_that_is_lost(node: Node) -> None:
    """This replica is in sync by what lies in the directory that failed: without it, it would lose records as a leader."""
    node.fill("/a", 3)
    node.fill("/b", 3, 3)
    node.platter.fail("/b", errno.EIO)
    with pytest.raises(KafkaError, match="may be old"):
        node.found("/b")
    log = node.found("/b", is_new=True)[1]  # it is not in sync any more: it only follows
    assert log.root.path == "/a"
    node.platter.repair()
    assert node.found("/b")[1].root.path == "/b"


def test_a_copy_whose_directory_fails_before_the_choice_is_not_chosen(node: Node) -> None:
    node.fill("/a", 3, 3)
    node.fill("/b", 3)
    manager = node.start()
    manager.roots[0].failed(OSError(errno.EIO, "gone"))
    log = manager.get_or_create(NAME, LogConfig(), TOPIC, IDS["/b"], now_ms=NOW_MS, is_new=False)
    assert log.root.path == "/b"
    manager = node.start()
    manager.roots[1].failed(OSError(errno.EIO, "gone"))
    log = manager.get_or_create(NAME, LogConfig(), TOPIC, IDS["/a"], now_ms=NOW_MS, is_new=False)
    assert log.root.path == "/a"


def test_a_copy_whose_directory_fails_at_the_start_is_not_chosen(node: Node, make_batch: MakeBatch) -> None:
    node.fill("/a", 3, 3)
    node.fill("/b", 3, 3, 3)
    other = node.start("/b").get_or_create(TopicPartition("zebras", 0), LogConfig(), TOPIC, now_ms=NOW_MS)
    other.append_as_leader(make_batch(), 3, NOW_MS)
    node.platter.fail("/b/zebras-0/", errno.EIO, ("read",))
    manager, log = node.found("/a")
    assert manager.roots[1].failure is not None
    assert (log.root.path, strays(manager)) == ("/a", [])


def test_all_copies_of_a_topic_that_is_deleted_go_with_it(node: Node) -> None:
    """They were never told apart: its replica waited for its turn."""
    node.fill("/a", 3)
    node.fill("/b", 5)
    manager = node.start()
    manager.delete(NAME, NOW_MS, TOPIC)
    assert strays(manager) == []
    manager.removals.purge(NOW_MS + LogConfig().file_delete_delay_ms)
    assert not [path for path in IDS if any("flights" in name for name in manager.disk.list_directory(path))]
    assert [root.partitions for root in manager.roots] == [0, 0]


def test_a_copy_is_deleted_though_the_other_cannot_be_renamed_yet(node: Node) -> None:
    node.fill("/a", 3)
    node.fill("/b", 5)
    manager = node.start()
    node.platter.fail("/a/flights-0", errno.ENOSPC, ("rename",))
    with pytest.raises(KafkaError):
        manager.delete(NAME, NOW_MS, TOPIC)
    node.platter.repair()
    manager.removals.purge(NOW_MS + LogConfig().file_delete_delay_ms)
    assert not [path for path in IDS if any("flights" in name for name in manager.disk.list_directory(path))]


def test_another_topics_copy_is_not_deleted_with_it(node: Node) -> None:
    node.fill("/a", 3, topic_id=EARLIER)
    node.fill("/b", 5)
    manager = node.start()
    manager.delete(NAME, NOW_MS, TOPIC)
    assert manager.logs[NAME].root.path == "/a"
    _, log = node.found("/a", EARLIER)
    assert (log.root.path, log.log_end_offset) == ("/a", 1)


def test_an_earlier_topics_log_in_a_directory_that_failed_does_not_keep_the_next_from_its_name(node: Node) -> None:
    """The directory failed when some of its logs were open; what lies in another is not known, and so in nobody's way."""
    node.fill("/b", 3, topic_id=EARLIER)
    manager = node.start()
    manager.roots[1].failed(OSError(errno.EIO, "gone"))
    with pytest.raises(KafkaError):
        manager.get_or_create(NAME, LogConfig(), EARLIER, now_ms=NOW_MS)
    log = manager.get_or_create(NAME, LogConfig(), TOPIC, now_ms=NOW_MS)
    assert (log.root.path, log.topic_id) == ("/a", TOPIC)
    assert manager.offline == {}
