"""Checkpoints that are written later: what counts as saved meanwhile, and that the newest contents stay."""

from ottla.log.directories.owned_offsets import read_owned
from ottla.log.directories.saved_offsets import SavedOffsets
from ottla.log.names import TopicIdPartition, TopicPartition
from ottla.runtime.replaced_files import ReplacedFiles
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.work_later import OnDone, Work, at_once

PATH = "/points"
A, B = (TopicIdPartition(TopicPartition(name, 0), bytes(15) + name.encode()) for name in "ab")


class Thread:
    """Does the work when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Work, OnDone]] = []

    def later(self, work: Work, on_done: OnDone) -> None:
        self.waiting.append((work, on_done))

    def run(self) -> None:
        for work, on_done in self.waiting:
            at_once(work, on_done)
        self.waiting.clear()


class Bench:
    def __init__(self) -> None:
        self.disk = SimulatedDisk(Platter.seeded(1))
        self.thread = Thread()
        self.file = SavedOffsets(ReplacedFiles(self.disk), PATH, {A: 1})
        self.told: list[OSError | None] = []

    def save(self, offsets: dict[TopicIdPartition, int]) -> None:
        self.file.replace_later(offsets, self.thread.later, self.told.append)

    @property
    def on_disk(self) -> dict[TopicIdPartition, int]:
        return read_owned(self.disk, PATH)


def test_what_is_being_written_is_not_saved_but_may_be_there() -> None:
    bench = Bench()
    bench.save({A: 5})
    assert (bench.file.saved, bench.file.highest(A), bench.file.is_under_way) == ({A: 1}, 5, True)
    bench.thread.run()
    assert (bench.file.saved, bench.file.highest(A), bench.file.is_under_way) == ({A: 5}, 5, False)
    assert (bench.on_disk, bench.told) == ({A: 5}, [None])


def test_points_that_go_down_count_as_high_until_they_are_written() -> None:
    bench = Bench()
    bench.save({A: 0})
    assert bench.file.highest(A) == 1
    bench.thread.run()
    assert bench.file.highest(A) == 0


def test_what_is_written_at_once_is_not_undone_by_what_waited() -> None:
    """A truncation lowers its partition's point while a checkpoint is on its way: the others keep what that one says."""
    bench = Bench()
    bench.save({A: 5, B: 7})
    bench.file.replace({**bench.file.latest, A: 2})
    assert bench.on_disk == {A: 2, B: 7}
    bench.thread.run()
    assert (bench.on_disk, bench.file.saved, bench.file.highest(A)) == ({A: 2, B: 7}, {A: 2, B: 7}, 2)


def test_what_could_not_be_written_is_tried_again() -> None:
    bench = Bench()
    bench.disk.make_directories(PATH + ".tmp")  # in the way
    bench.save({A: 5})
    bench.thread.run()
    assert bench.told != [None]
    assert (bench.file.saved, bench.file.highest(A)) == ({A: 1}, 5), "who knows what the disk has"
    bench.save({A: 1})
    assert bench.thread.waiting, "also when it would change nothing"


def test_nothing_is_written_when_nothing_changed() -> None:
    bench = Bench()
    bench.save({A: 1})
    assert not bench.thread.waiting
