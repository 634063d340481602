import errno
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.runtime.lmdb_store import LmdbStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    opened = LmdbStore(str(tmp_path / "store"), map_size_bytes=1 << 20)
    yield opened
    opened.close()


@pytest.mark.parametrize("durable", [True, False])
def test_what_is_written_is_read(store: LmdbStore, durable: bool) -> None:
    store.write([(b"b", b"2"), (b"a", b"1"), (b"c", b"3")], durable=True)
    store.write([(b"a2", b"x")], [b"c", b"never there"], durable=durable)
    assert store.get(b"a") == b"1"
    assert store.get(b"c") is None
    assert list(store.scan()) == [(b"a", b"1"), (b"a2", b"x"), (b"b", b"2")]
    assert list(store.scan(b"a")) == [(b"a", b"1"), (b"a2", b"x")]
    assert list(store.scan(b"zz")) == []


def test_a_put_wins_over_a_delete_of_the_same_write(store: LmdbStore) -> None:
    store.write([(b"a", b"1")], [b"a"], durable=False)
    assert store.get(b"a") == b"1"


def test_a_scan_longer_than_its_chunks_is_complete(store: LmdbStore) -> None:
    pairs = [(b"k%05d" % number, b"v") for number in range(2500)]
    store.write(pairs, durable=True)
    store.write([(b"k00500x", b"w")], [b"k02000"], durable=False)
    expected = sorted([pair for pair in pairs if pair[0] != b"k02000"] + [(b"k00500x", b"w")])
    assert list(store.scan(b"k")) == expected


def test_a_write_during_a_scan_is_refused(store: LmdbStore) -> None:
    store.write([(b"k%05d" % number, b"v") for number in range(2500)], durable=True)
    scan = store.scan()
    next(scan)
    store.write([(b"x", b"y")], durable=False)
    with pytest.raises(RuntimeError, match="written to during a scan"):
        list(scan)


def test_a_store_of_which_the_disk_cannot_tell_gives_way_to_no_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A voter would have promised nothing."""
    path = str(tmp_path / "store")
    store = LmdbStore(path, map_size_bytes=1 << 20)
    store.write([(b"vote", b"2")], durable=True)
    store.close()

    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", broken)
        with pytest.raises(OSError, match="Input/output error"):
            LmdbStore(path, map_size_bytes=1 << 20)
    store = LmdbStore(path, map_size_bytes=1 << 20)
    assert store.get(b"vote") == b"2"
    store.close()


def test_a_full_map_grows(store: LmdbStore) -> None:
    for number in range(40):
        store.write([(b"%d" % number, bytes(100_000))], durable=True)
    assert len(list(store.scan())) == 40


def test_only_durable_writes_survive_a_kill(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    script = f"""
import os
from ottla.runtime.lmdb_store import LmdbStore
store = LmdbStore({path!r})
store.write([(b"early", b"1")], durable=False)
store.write([(b"vote", b"2")], durable=True)
store.write([(b"late", b"3")], durable=False)
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    store = LmdbStore(path)
    assert list(store.scan()) == [(b"early", b"1"), (b"vote", b"2")]
    store.close()


def test_writes_without_durability_cost_no_commit_and_sync_joins_them(store: LmdbStore, tmp_path: Path) -> None:
    before = os.stat(tmp_path / "store").st_mtime_ns
    for number in range(100):
        store.write([(b"%d" % number, b"v")], durable=False)
    assert os.stat(tmp_path / "store").st_mtime_ns == before
    store.sync()
    assert os.stat(tmp_path / "store").st_mtime_ns > before


def test_a_copy_holds_everything_and_opens(store: LmdbStore, tmp_path: Path) -> None:
    store.write([(b"a", b"1")], durable=True)
    store.write([(b"b", b"2")], durable=False)
    store.copy_to(str(tmp_path / "copy"))
    copy = LmdbStore(str(tmp_path / "copy"))
    assert list(copy.scan()) == [(b"a", b"1"), (b"b", b"2")]
    copy.close()


def test_clear_empties(store: LmdbStore) -> None:
    store.write([(b"a", b"1")], durable=True)
    store.write([(b"b", b"2")], durable=False)
    store.clear()
    assert list(store.scan()) == []


def test_a_failed_commit_says_so_and_keeps_the_changes(store: LmdbStore) -> None:
    with pytest.raises(OSError, match="store") as caught:
        store.write([(b"k" * 600, b"too long a key")], durable=True)
    assert caught.value.errno in (None, errno.EINVAL)
    assert store.get(b"k" * 600) == b"too long a key"
    store.clear()


def test_a_copy_is_restored_whole_and_goes_its_own_way(store: LmdbStore, tmp_path: Path) -> None:
    store.write([(b"a", b"1"), (b"b", b"2")], durable=True)
    path = tmp_path / "copy"
    store.copy_to(str(path))
    before = path.read_bytes()
    store.write([(b"c", b"3")], [b"a"], durable=True)
    store.write([(b"d", b"4")], durable=False)
    store.restore(str(path))
    assert list(store.scan()) == [(b"a", b"1"), (b"b", b"2")]
    store.write([(b"e", b"5")], durable=True)
    assert [key for key, _ in store.scan()] == [b"a", b"b", b"e"]
    assert path.read_bytes() == before


def test_what_was_restored_is_there_after_a_restart(tmp_path: Path) -> None:
    source, target = LmdbStore(str(tmp_path / "source")), LmdbStore(str(tmp_path / "target"))
    source.write([(b"a", b"1")], durable=True)
    source.copy_to(str(tmp_path / "copy"))
    target.write([(b"b", b"2")], durable=True)
    target.restore(str(tmp_path / "copy"))
    target.close()
    assert list(LmdbStore(str(tmp_path / "target")).scan()) == [(b"a", b"1")]


def test_looking_into_a_copy_does_not_change_it(store: LmdbStore, tmp_path: Path) -> None:
    """Snapshots are told by their checksums."""
    store.write([(b"a", b"1")], durable=True)
    path = tmp_path / "copy"
    store.copy_to(str(path))
    before = path.read_bytes()
    copy = LmdbStore(str(path))
    assert list(copy.scan()) == [(b"a", b"1")]
    copy.close()
    assert path.read_bytes() == before


def test_a_file_that_is_no_store_is_an_error_of_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(b"x" * 10_000)
    with pytest.raises(OSError, match="damaged"):
        LmdbStore(str(path))


def test_a_copy_that_cannot_be_made_is_an_error_of_the_disk(store: LmdbStore, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no-such-directory"):
        store.copy_to(str(tmp_path / "no-such-directory" / "copy"))


def test_a_map_that_is_full_during_a_copy_grows_after_it(store: LmdbStore, tmp_path: Path) -> None:
    """LMDB must not be resized while anyone reads."""
    store.write([(b"%d" % number, bytes(1000)) for number in range(500)], durable=True)

    def copy_often() -> None:
        for each in range(20):
            store.copy_to(str(tmp_path / f"copy-{each}"))

    copying = threading.Thread(target=copy_often)
    copying.start()
    for number in range(20):
        store.write([(b"more %d" % number, bytes(100_000))], durable=True)
    copying.join()
    copy = LmdbStore(str(tmp_path / "copy-19"))
    assert len(list(copy.scan())) >= 500
    copy.close()
    assert len(list(store.scan())) == 520


def test_what_was_read_leaves_the_process_with_the_next_commit_and_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = LmdbStore(str(path))
    store.write([(b"%d" % number, bytes(2_000)) for number in range(1_000)], durable=True)
    assert len(list(store.scan())) == 1_000
    assert resident_kb(path) > 2_000
    store.write([(b"one", b"more")], durable=False)
    store.sync()
    assert resident_kb(path) < 100
    assert store.get(b"77") == bytes(2_000)
    assert store.get(b"one") == b"more"
    store.close()


def resident_kb(path: Path) -> int:
    mappings = re.split(r"^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    own = [each for each in mappings if each.partition("\n")[0].endswith(f" {path}")]
    assert own, "the file is mapped"
    return sum(int(found) for each in own for found in re.findall(r"^Rss: +(\d+) kB", each, re.MULTILINE))


@pytest.mark.parametrize("pages", [2, 3, 4, 10, -1])
def test_a_file_that_lost_its_end_is_an_error_and_not_the_end_of_the_process(tmp_path: Path, pages: int) -> None:
    """LMDB maps the file: what is read behind its end comes as SIGBUS."""
    path = tmp_path / "store"
    full = LmdbStore(str(path))
    for number in range(200):
        full.write([(b"k%05d" % number, bytes(300))], durable=True)
    full.close()
    size = path.stat().st_size
    os.truncate(path, (size if pages < 0 else 0) + pages * 4096)
    with pytest.raises(OSError, match=r"damaged: \d+ bytes are left of"):
        LmdbStore(str(path))


def test_pages_at_the_end_that_never_were_written_are_not_missed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    full = LmdbStore(str(path))
    full.write([(b"a", bytes(100_000)), (b"b", b"1")], durable=True)
    full.write([], [b"a"], durable=True)
    for number in range(20):  # move what lives to the pages that a had
        full.write([(b"b", b"%d" % number)], durable=True)
    full.close()
    os.truncate(path, path.stat().st_size - 4096)
    left = LmdbStore(str(path))
    assert left.get(b"b") == b"19"
    left.close()


def test_damaged_pages_are_an_error_with_the_file_in_it(tmp_path: Path) -> None:
    path = tmp_path / "store"
    full = LmdbStore(str(path))
    for number in range(200):
        full.write([(b"k%05d" % number, bytes(300))], durable=True)
    full.close()
    with path.open("r+b") as file:
        file.seek(2 * 4096)
        file.write(b"\x55" * (path.stat().st_size - 2 * 4096))
    rotten = LmdbStore(str(path))
    with pytest.raises(OSError, match=f"{path}: "):
        rotten.get(b"k00000")
    with pytest.raises(OSError, match=f"{path}: "):
        list(rotten.scan())


@pytest.mark.parametrize("room", [0, 4096])
def test_a_store_for_which_there_is_no_room_yet_is_made_once_there_is(tmp_path: Path, room: int) -> None:
    path = str(tmp_path / "store")
    script = (
        "import resource, sys; from ottla.runtime.lmdb_store import LmdbStore\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))\n"
        "try: LmdbStore(sys.argv[1])\n"
        "except OSError: sys.exit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, path], check=False).returncode == 7
    store = LmdbStore(path)
    store.write([(b"a", b"1")], durable=True)
    assert store.get(b"a") == b"1"
    store.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["store", "store-lock"]
