"""Snapshots on a disk that may lose power in any operation: there is a whole one, or none."""

from collections.abc import Callable

import msgspec
import pytest
from crc32c import crc32c

from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.quorum.snapshots.files import SnapshotDescription, SnapshotFiles
from ottla.runtime.simulation.crash import SimulatedCrash
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

DIRECTORY = "/metadata"
OLD, NEW = OffsetAndEpoch(10, 1), OffsetAndEpoch(20, 3)
DATA = bytes(range(256)) * 20
VOTERS = VoterSet((Voter(ReplicaKey(1, b"d" * 16), Endpoint("host", 1)),))


def platter(seed: int = 1) -> Platter:
    made = Platter.seeded(seed)
    disk = SimulatedDisk(made)
    disk.make_directories(DIRECTORY)
    disk.sync_directory("/")
    return made


def opened(on: Platter) -> SnapshotFiles:
    return SnapshotFiles(SimulatedDisk(on), DIRECTORY)


def names(on: Platter) -> list[str]:
    return SimulatedDisk(on).list_directory(DIRECTORY)


def put(on: Platter, name: str, data: bytes) -> None:
    disk = SimulatedDisk(on)
    file = disk.open(f"{DIRECTORY}/{name}", create=True)
    file.truncate(0)
    file.write_at([data], 0)
    file.sync()
    disk.sync_directory(DIRECTORY)


def describing(data: bytes = DATA) -> SnapshotDescription:
    return SnapshotDescription(len(data), crc32c(data), VOTERS)


def take(on: Platter, files: SnapshotFiles, snapshot: OffsetAndEpoch, data: bytes = DATA) -> None:
    files.discard_taken()
    SimulatedDisk(on).open(files.taking_path, create=True).write_at([data], 0)
    description = msgspec.structs.replace(files.measure(), voters=VOTERS)
    files.freeze_taken(snapshot, description)
    files.add(snapshot, description)


def receive(files: SnapshotFiles, data: bytes = DATA, piece: int = 1000) -> None:
    for position in range(0, len(data), piece):
        files.receive(position, data[position : position + piece])


def assert_whole(files: SnapshotFiles, snapshot: OffsetAndEpoch, data: bytes = DATA) -> None:
    assert files.describe(snapshot) == describing(data)
    assert files.read(snapshot, 0, len(data) + 1) == data
    assert files.is_sound(snapshot)


def test_a_snapshot_that_was_taken_is_there_after_a_restart() -> None:
    disk = platter()
    take(disk, opened(disk), OLD)
    assert_whole(opened(disk), OLD)


def test_snapshots_are_known_by_where_they_end() -> None:
    disk = platter()
    files = opened(disk)
    take(disk, files, NEW)
    take(disk, files, OLD)
    for known in (files, opened(disk)):
        assert known.all() == [OLD, NEW]
        assert known.latest == NEW
        assert (known.at_or_after(10), known.at_or_after(11), known.at_or_after(21)) == (OLD, NEW, None)


def test_a_snapshot_is_received_in_pieces() -> None:
    disk = platter()
    files = opened(disk)
    receive(files)
    assert files.keep_received(NEW, describing())
    assert_whole(files, NEW)
    assert_whole(opened(disk), NEW)


@pytest.mark.parametrize("other", [NEW._replace(epoch=2), NEW._replace(epoch=9)], ids=["earlier", "later"])
def test_a_received_snapshot_takes_the_place_of_one_of_another_history_that_ends_there_too(
    other: OffsetAndEpoch,
) -> None:
    """Its epoch may be the later one: the voters came back from a backup."""
    disk = platter()
    files = opened(disk)
    take(disk, files, other, b"of a history that is gone")
    receive(files)
    assert files.keep_received(NEW, describing())
    for known in (files, opened(disk)):
        assert (known.all(), known.latest) == ([NEW], NEW)
    assert_whole(files, NEW)


def test_a_piece_at_the_beginning_begins_anew() -> None:
    disk = platter()
    files = opened(disk)
    receive(files, b"another one" * 1000)
    receive(files)
    assert files.keep_received(NEW, describing())


@pytest.mark.parametrize("wrong", [DATA[:-1], DATA + b"x", DATA[:-1] + b"x"], ids=["short", "long", "another byte"])
def test_what_is_not_what_was_promised_is_not_kept(wrong: bytes) -> None:
    disk = platter()
    files = opened(disk)
    receive(files, wrong)
    assert not files.keep_received(NEW, describing())
    assert names(disk) == []
    assert files.latest is None


def test_half_a_snapshot_is_removed_at_the_next_start() -> None:
    disk = platter()
    files = opened(disk)
    receive(files, DATA[:1000])
    put(disk, "taking.checkpoint.part", DATA)
    assert opened(disk).latest is None
    assert names(disk) == []


def test_what_looking_into_a_snapshot_leaves_is_removed_at_the_next_start() -> None:
    disk = platter()
    take(disk, opened(disk), OLD)
    before = names(disk)
    put(disk, f"{before[0]}-lock", b"")
    opened(disk)
    assert names(disk) == before


def test_a_file_that_is_not_ours_is_left_alone_and_not_used() -> None:
    disk = platter()
    put(disk, "00000000000000000000-0000000000.checkpoint", b"of Apache Kafka")
    put(disk, "00000000000000000000.log", b"")
    assert opened(disk).latest is None
    assert len(names(disk)) == 2


@pytest.mark.parametrize("description", [b"", b"{", b'{"size": 1, "checksum": 0}'])
def test_a_snapshot_that_does_not_fit_its_description_is_not_used(description: bytes) -> None:
    disk = platter()
    take(disk, opened(disk), OLD)
    put(disk, "00000000000000000010-0000000001.checkpoint.json", description)
    assert opened(disk).latest is None
    assert len(names(disk)) == 2


def test_a_flipped_bit_is_found() -> None:
    disk = platter()
    take(disk, opened(disk), OLD)
    put(disk, "00000000000000000010-0000000001.checkpoint", bytes([DATA[0] ^ 1]) + DATA[1:])
    assert not opened(disk).is_sound(OLD)


def test_older_ones_are_removed_with_all_their_files() -> None:
    disk = platter()
    files = opened(disk)
    take(disk, files, OLD)
    put(disk, f"{names(disk)[0]}-lock", b"")
    take(disk, files, NEW)
    files.remove_older(NEW)
    assert files.all() == [NEW]
    assert all(name.startswith("00000000000000000020") for name in names(disk))


# --- power cuts -------------------------------------------------------------------------------------------------------


def crash_everywhere(work: Callable[[Platter, SnapshotFiles], None], seed: int) -> list[list[OffsetAndEpoch]]:
    """What there is after a power cut in each operation of ``work`` (which begins with one snapshot), and after all of it."""
    outcomes: list[list[OffsetAndEpoch]] = []
    for number in range(1, 1000):
        disk = platter(seed)
        files = opened(disk)
        take(disk, files, OLD)
        disk.crash_at_operation(number)
        try:
            work(disk, files)
        except SimulatedCrash:
            after = opened(disk)
            for snapshot in after.all():
                assert_whole(after, snapshot)
            assert len(names(disk)) == 2 * len(after.all()), "nothing is left lying about"
            outcomes.append(after.all())
        else:
            disk.power_loss()
            return [*outcomes, opened(disk).all()]
    raise AssertionError("the work has no end")


SEEDS = range(1, 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_while_one_is_taken_leaves_it_whole_or_not_at_all(seed: int) -> None:
    outcomes = crash_everywhere(lambda disk, files: take(disk, files, NEW), seed)
    assert all(outcome in ([OLD], [OLD, NEW]) for outcome in outcomes)
    assert (outcomes[0], outcomes[-1]) == ([OLD], [OLD, NEW])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_while_one_is_received_leaves_it_whole_or_not_at_all(seed: int) -> None:
    def work(disk: Platter, files: SnapshotFiles) -> None:
        receive(files)
        assert files.keep_received(NEW, describing())

    outcomes = crash_everywhere(work, seed)
    assert all(outcome in ([OLD], [OLD, NEW]) for outcome in outcomes)
    assert (outcomes[0], outcomes[-1]) == ([OLD], [OLD, NEW])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_while_old_ones_are_removed_leaves_the_new_one(seed: int) -> None:
    def work(disk: Platter, files: SnapshotFiles) -> None:
        take(disk, files, NEW)
        SimulatedDisk(disk).sync_directory(DIRECTORY)
        files.remove_older(NEW)

    outcomes = crash_everywhere(work, seed)
    assert NEW in outcomes[-1]
    kept = [outcome for outcome in outcomes if NEW in outcome]
    assert all(outcome in ([NEW], [OLD, NEW]) for outcome in kept)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_leaves_one_of_two_that_end_where_the_log_may_begin(seed: int) -> None:
    other = OLD._replace(epoch=5)

    def work(disk: Platter, files: SnapshotFiles) -> None:
        receive(files)
        assert files.keep_received(other, describing())

    outcomes = crash_everywhere(work, seed)
    assert all(outcome in ([OLD], [OLD, other], [other]) for outcome in outcomes)
    assert (outcomes[0], outcomes[-1]) == ([OLD], [other])
