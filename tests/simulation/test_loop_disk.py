"""What a simulated disk keeps and what it forgets."""

import contextlib
import errno
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.runtime.disk import Disk, File
from ottla.runtime.simulation.crash import SimulatedCrash
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.simulation.store import SimulatedStore


def outcomes(write: Callable[[Disk], None], path: str, seeds: int = 200) -> set[bytes | None]:
    """What a power cut after ``write`` may leave of the file at ``path``; None: no file."""
    seen: set[bytes | None] = set()
    for seed in range(seeds):
        platter = Platter.seeded(seed)
        write(SimulatedDisk(platter))
        platter.power_loss()
        disk = SimulatedDisk(platter)
        seen.add(disk.read_bytes(path) if disk.exists(path) else None)
    return seen


def durable_file(disk: Disk, data: bytes) -> File:
    file = disk.open("/file", create=True)
    file.write_at([data], 0)
    file.sync()
    disk.sync_directory("/")
    return file


def test_what_was_synced_survives() -> None:
    assert outcomes(lambda disk: disk.write_atomically("/file", b"kept"), "/file") == {b"kept"}


def test_a_name_that_was_not_synced_may_be_lost_even_when_the_contents_were() -> None:
    def write(disk: Disk) -> None:
        file = disk.open("/file", create=True)
        file.write_at([b"data"], 0)
        file.sync()

    assert outcomes(write, "/file") == {None, b"data"}


def test_an_unsynced_append_is_lost_kept_or_torn() -> None:
    def write(disk: Disk) -> None:
        durable_file(disk, b"old").write_at([b"new!"], 3)

    seen = outcomes(write, "/file")
    assert {b"old", b"oldnew!", b"oldne"} <= seen
    whole = b"oldnew!"
    assert all(data and (data == whole[: len(data)] or data == b"old\0\0\0\0"[: len(data)]) for data in seen)


def test_an_unsynced_overwrite_leaves_old_new_or_a_mix_of_the_same_size() -> None:
    def write(disk: Disk) -> None:
        durable_file(disk, b"aaaa").write_at([b"bbbb"], 0)

    seen = outcomes(write, "/file")
    assert {b"aaaa", b"bbbb", b"baaa"} <= seen
    assert all(data and len(data) == 4 for data in seen)


def test_an_unsynced_truncate_may_come_back() -> None:
    def write(disk: Disk) -> None:
        file = durable_file(disk, b"0123456789")
        file.truncate(4)
        file.write_at([b"X"], 4)

    seen = outcomes(write, "/file")
    assert {b"0123456789", b"0123X"} <= seen


def test_a_rename_before_the_sync_of_the_contents_may_leave_an_empty_file() -> None:
    def write(disk: Disk) -> None:
        durable_file(disk, b"old")
        file = disk.open("/new", create=True)
        file.write_at([b"new"], 0)
        disk.rename("/new", "/file")
        disk.sync_directory("/")

    seen = outcomes(write, "/file")
    assert b"" in seen
    assert b"old" not in seen


def test_a_rename_or_unlink_that_was_not_synced_may_be_undone() -> None:
    def rename(disk: Disk) -> None:
        durable_file(disk, b"data")
        disk.rename("/file", "/other")

    def unlink(disk: Disk) -> None:
        durable_file(disk, b"data")
        disk.unlink("/file")

    assert outcomes(rename, "/file") == {None, b"data"}
    assert outcomes(rename, "/other") == {None, b"data"}
    assert outcomes(unlink, "/file") == {None, b"data"}


def test_a_rename_between_directories_is_whole_or_not_at_all() -> None:
    for seed in range(100):
        platter = Platter.seeded(seed)
        disk = SimulatedDisk(platter)
        disk.make_directories("/a")
        disk.make_directories("/b")
        disk.sync_directory("/")
        disk.open("/a/x", create=True)
        disk.rename("/a/x", "/b/x")
        disk.sync_directory("/b")
        platter.power_loss()
        disk = SimulatedDisk(platter)
        assert (disk.list_directory("/a"), disk.list_directory("/b")) == ([], ["x"])


def test_a_directory_that_was_not_synced_into_its_parent_takes_its_files_with_it() -> None:
    def write(disk: Disk) -> None:
        disk.make_directories("/logs")
        disk.write_atomically("/logs/file", b"data")

    assert outcomes(write, "/logs/file") == {None, b"data"}


def test_a_killed_process_loses_nothing_but_its_open_files_and_locks() -> None:
    platter = Platter.seeded(1)
    disk = SimulatedDisk(platter)
    lock = disk.lock("/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/.lock")
    file = disk.open("/file", create=True)
    file.write_at([b"unsynced"], 0)
    platter.close_sessions()
    for use in (lambda: file.read_at(1, 0), lambda: disk.exists("/file"), lock.release):
        with pytest.raises(SimulatedCrash):
            use()
    again = SimulatedDisk(platter)
    again.lock("/.lock").release()
    assert again.read_bytes("/file") == b"unsynced"


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    platter = Platter.seeded(1)
    platter.capacity_bytes = 10
    disk = SimulatedDisk(platter)
    file = disk.open("/file", create=True)
    file.write_at([b"1234567"], 0)
    with pytest.raises(OSError, match="No space left") as caught:
        file.write_at([b"89abcdef"], 7)
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 10
    assert disk.free_bytes("/") == 0
    assert file.write_at([b"7654321"], 0) == 7  # overwriting needs no room
    disk.unlink("/file")
    assert disk.free_bytes("/") == 10


def test_planted_failures_come_where_they_were_planted() -> None:
    platter = Platter.seeded(1)
    disk = SimulatedDisk(platter)
    disk.make_directories("/bad")
    good, bad = disk.open("/good", create=True), disk.open("/bad/file", create=True)
    platter.fail("/bad", errno.EIO, ("sync",))
    bad.write_at([b"x"], 0)
    good.sync()
    with pytest.raises(OSError, match="Input/output error"):
        bad.sync()
    platter.repair()
    bad.sync()


def test_what_was_dirty_when_a_sync_failed_is_lost_though_the_next_sync_succeeds() -> None:
    def left(rewritten: bool) -> set[bytes]:
        seen = set()
        for seed in range(40):
            platter = Platter.seeded(seed)
            file = durable_file(SimulatedDisk(platter), b"old")
            file.write_at([b"new and longer"], 0)
            stop_failing = platter.fail("/file", errno.EIO, ("sync",))
            with pytest.raises(OSError, match="Input/output error"):
                file.sync()
            stop_failing()
            if rewritten:
                file.write_at([b"new and longer"], 0)
            file.sync()
            assert file.read_at(100, 0) == b"new and longer"
            platter.power_loss()
            seen.add(SimulatedDisk(platter).read_bytes("/file"))
        return seen

    assert b"old\0\0\0\0\0\0\0\0\0\0\0" in left(rewritten=False)
    assert left(rewritten=True) == {b"new and longer"}


def test_a_crash_after_every_operation_reaches_every_state() -> None:
    """The way the keepers are tested: count the operations, then crash in each of them."""

    def work(disk: Disk) -> None:
        disk.write_atomically("/file", b"one")
        disk.write_atomically("/file", b"two")

    platter = Platter.seeded(0)
    work(SimulatedDisk(platter))
    assert platter.operations == 12  # create, truncate, write, sync, rename, sync the directory; twice
    seen = set()
    for operation in range(1, 13):
        for seed in range(20):
            platter = Platter.seeded(seed)
            platter.crash_at_operation(operation)
            with pytest.raises(SimulatedCrash):
                work(SimulatedDisk(platter))
            disk = SimulatedDisk(platter)
            seen.add(disk.read_bytes("/file") if disk.exists("/file") else None)
    assert seen == {None, b"one", b"two"}


def test_the_tree_behaves_as_the_real_one() -> None:
    disk = SimulatedDisk(Platter.seeded(1))
    disk.make_directories("/a/b")
    disk.make_directories("/a/b")
    disk.open("/a/f", create=True)
    for use, error in (
        (lambda: disk.open("/none"), FileNotFoundError),
        (lambda: disk.open("/none/f", create=True), FileNotFoundError),
        (lambda: disk.open("/a"), IsADirectoryError),
        (lambda: disk.list_directory("/a/f"), NotADirectoryError),
        (lambda: disk.rename("/none", "/a/g"), FileNotFoundError),
        (lambda: disk.unlink("/none"), FileNotFoundError),
        (lambda: disk.open("/a/f", writable=False).truncate(0), OSError),
    ):
        with pytest.raises(error):
            use()
    assert disk.list_directory("/a") == ["b", "f"]
    disk.rename("/a", "/c")
    assert disk.is_directory("/c/b")
    assert disk.exists("/c/f")
    disk.remove_tree("/c")
    assert disk.list_directory("/") == []


PIECES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 9000), st.integers(1, 6000)),
        st.tuples(st.just("truncate"), st.integers(0, 9000), st.just(0)),
        st.tuples(st.just("sync"), st.just(0), st.just(0)),
    ),
    max_size=12,
)


@given(PIECES, st.integers(0, 1000))
def test_every_byte_after_a_crash_was_there_once_and_synced_ones_only_if_unchanged(
    pieces: list[tuple[str, int, int]], seed: int
) -> None:
    platter = Platter.seeded(seed)
    file = SimulatedDisk(platter).open("/file", create=True)
    SimulatedDisk(platter).sync_directory("/")
    file.sync()
    states = [b""]
    for number, (what, where, length) in enumerate(pieces):
        if what == "write":
            file.write_at([bytes([number + 1]) * length], where)
        elif what == "truncate":
            file.truncate(where)
        else:
            file.sync()
        now = file.read_at(100_000, 0)
        states = [now] if what == "sync" else [*states, now]
    platter.power_loss()
    left = SimulatedDisk(platter).read_bytes("/file")
    assert min(map(len, states)) <= len(left) <= max(map(len, states))
    for position, byte in enumerate(left):
        possible = {state[position] if position < len(state) else 0 for state in states}
        assert byte in possible


# --- the store


def test_the_store_keeps_durable_writes_and_forgets_others_with_its_process() -> None:
    platter = Platter.seeded(1)
    store = SimulatedStore(SimulatedDisk(platter), "/quorum/state")
    store.write([(b"early", b"1")], durable=False)
    store.write([(b"vote", b"2"), (b"gone", b"x")], durable=True)
    store.write([], [b"gone"], durable=True)
    store.write([(b"late", b"3")], durable=False)
    assert store.get(b"late") == b"3"
    platter.close_sessions()
    again = SimulatedStore(SimulatedDisk(platter), "/quorum/state")
    assert list(again.scan()) == [(b"early", b"1"), (b"vote", b"2")]
    assert list(again.scan(b"v")) == [(b"vote", b"2")]


def crash_a_store(operation: int, seed: int) -> tuple[Platter, int]:
    """Writes 15 transactions of two equal values; the power is cut in ``operation``. Answers the last acknowledged one."""
    platter, acknowledged = Platter.seeded(seed), -1
    SimulatedDisk(platter).make_directories("/q")
    SimulatedDisk(platter).sync_directory("/")
    platter.crash_at_operation(operation)
    with contextlib.suppress(SimulatedCrash):
        store = SimulatedStore(SimulatedDisk(platter), "/q/state")
        for number in range(15):
            value = b"%03d" % number * 2000  # more than a page: a torn one may have holes
            store.write([(b"a", value), (b"b", value)], durable=True)
            acknowledged = number
    platter.cancel_crash()
    return platter, acknowledged


def test_a_store_crashed_in_any_operation_holds_whole_transactions_only() -> None:
    for operation in range(1, 34):
        for seed in range(10):
            platter, acknowledged = crash_a_store(operation, seed)
            store = SimulatedStore(SimulatedDisk(platter), "/q/state")
            value = store.get(b"a")
            assert value == store.get(b"b")
            assert (-1 if value is None else int(value[:3])) >= acknowledged
            size = SimulatedDisk(platter).open("/q/state").size()
            store.write([(b"c", b"")], durable=True)
            assert SimulatedDisk(platter).open("/q/state").size() > size, "a torn end was not cut off"


def test_the_store_rewrites_itself_when_most_of_it_is_history() -> None:
    platter = Platter.seeded(1)
    disk = SimulatedDisk(platter)
    store = SimulatedStore(disk, "/q/state")
    for _ in range(30):
        store.write([(b"key", bytes(100_000))], durable=True)
    assert disk.open("/q/state").size() < 1_500_000
    store.copy_to("/q/copy")
    store.clear()
    assert list(store.scan()) == []
    assert SimulatedStore(disk, "/q/copy").get(b"key") == bytes(100_000)
    platter.power_loss()
    assert list(SimulatedStore(SimulatedDisk(platter), "/q/state").scan()) == []


def test_a_failed_sync_of_the_store_is_reported_and_can_be_repeated() -> None:
    platter = Platter.seeded(1)
    store = SimulatedStore(SimulatedDisk(platter), "/q/state")
    platter.fail("/q", errno.EIO, ("sync",))
    with pytest.raises(OSError, match="Input/output error"):
        store.write([(b"a", b"1")], durable=True)
    platter.repair()
    store.sync()
    platter.close_sessions()
    assert SimulatedStore(SimulatedDisk(platter), "/q/state").get(b"a") == b"1"


def test_a_sync_of_everything_keeps_contents_and_names() -> None:
    def write(disk: Disk) -> None:
        disk.make_directories("/a")
        disk.open("/a/file", create=True).write_at([b"kept"], 0)
        disk.sync_everything("/")

    assert outcomes(write, "/a/file") == {b"kept"}
