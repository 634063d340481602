"""What manifests say together, and who comes first."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.sinks import manifests, parquet
from ottla.pipeline.sinks.errors import SinkError, TableDamaged, WriteConflict
from ottla.pipeline.sinks.part_files import PartFiles
from ottla.pipeline.sinks.store import Store
from tests.unit.pipeline.sinks.tables import Query, batch, values

ONE, TWO = batch([("t", 0, 0, "a")]), batch([("t", 0, 1, "b")])


def test_a_reader_opens_the_last_snapshot_and_what_is_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "SNAPSHOT_EVERY", 3)
    query = Query("parquet", str(tmp_path))
    for number in range(5):
        query.batch(number, batch([("t", 0, number, f"v{number}")]))
    (tmp_path / manifests.name(2)).unlink()
    assert values("parquet", str(tmp_path)) == [f"v{number}" for number in range(5)]
    gone = parquet.vacuum(str(tmp_path), older_than_hours=0)
    assert gone == [manifests.name(0), manifests.name(1)]
    assert values("parquet", str(tmp_path)) == [f"v{number}" for number in range(5)]
    assert not query.batch(4, ONE)


def test_manifests_that_are_missing_or_torn_are_named(tmp_path: Path) -> None:
    query = Query("parquet", str(tmp_path))
    for number in range(3):
        query.batch(number, ONE)
    (tmp_path / manifests.name(2)).write_text("{")
    with pytest.raises(TableDamaged, match=r"000000000002\.json cannot be read"):
        parquet.committed_files(str(tmp_path))
    (tmp_path / manifests.name(1)).unlink()
    with pytest.raises(TableDamaged, match="lacks manifests"):
        parquet.committed_files(str(tmp_path))
    with pytest.raises(SinkError, match="There is no table at"):
        parquet.committed_files(str(tmp_path / "none"))


def test_who_finds_his_number_taken_looks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path)
    query = Query("parquet", path)
    query.batch(0, ONE)
    real, left = manifests.put, [Query("parquet", path, "q2"), Query("parquet", path, "q1")]

    def put(*told: Any) -> bool:
        if left:
            left.pop().batch(1, TWO)
        return real(*told)

    monkeypatch.setattr(manifests, "put", put)
    assert not query.batch(1, TWO)
    assert values("parquet", path) == ["a", "b", "b"]
    assert {(each.app_id, each.batch) for each in parquet.commits(path)} == {("q1", 0), ("q1", 1), ("q2", 1)}


def test_who_always_comes_too_late_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "put", lambda *_: False)
    with pytest.raises(WriteConflict, match="let one query write to a table"):
        Query("parquet", str(tmp_path)).batch(0, ONE)


def test_a_compaction_gives_way_to_who_replaced_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query("parquet", str(tmp_path))
    query.batch(0, ONE)
    query.batch(1, TWO)
    real = Store.size

    def size(self: Store, path: str) -> int:
        query.batch(2, ONE, overwrite=True)
        return real(self, path)

    monkeypatch.setattr(Store, "size", size)
    parquet.compact(str(tmp_path))
    assert values("parquet", str(tmp_path)) == ["a"]
    assert not list(tmp_path.glob("part-compacted*"))


def test_a_compaction_has_one_small_file_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query("parquet", str(tmp_path))
    for number in range(5):
        query.batch(number, batch([("t", 0, number, str(number))]))
    opened: list[Any] = []
    real = Store.open

    def counted(store: Store, path: str) -> Any:
        assert all(each.closed for each in opened)
        opened.append(real(store, path))
        return opened[-1]

    with monkeypatch.context() as patched:
        patched.setattr(Store, "open", counted)
        done = parquet.compact(str(tmp_path))
    assert (done.files_before, done.files_after) == (5, 1)
    assert values("parquet", str(tmp_path)) == ["0", "1", "2", "3", "4"]


def test_a_task_of_many_partitions_holds_no_more_than_one_of_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.pipeline.sinks.part_files.OPEN_MAX", 8)
    monkeypatch.setattr("ottla.pipeline.sinks.part_files.BUFFERED_BYTES_MAX", 1000)
    most = [0, 0]
    real = PartFiles._take

    def take(self: PartFiles, *told: Any) -> None:
        real(self, *told)
        most[0], most[1] = max(most[0], len(self._parts)), max(most[1], self._held_bytes)

    monkeypatch.setattr(PartFiles, "_take", take)
    query = Query("parquet", str(tmp_path), partitionBy="partition")
    rows = [
        batch([("t", number % 50, number, f"v{number:03}") for number in range(start, start + 50)]) for start in (0, 50)
    ]
    assert query.commit(0, [query.task(0, 0, rows)])
    assert most[0] <= 8
    assert most[1] <= 1000
    assert values("parquet", str(tmp_path)) == [f"v{number:03}" for number in range(100)]


def test_a_manifest_has_its_name_when_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a power cut in between leaves a name with nothing behind it, and the table cannot be read."""
    synced, claimed, link = list[str](), list[str](), os.link

    def claim(name: str, path: str) -> None:
        assert name in synced
        claimed.append(path)
        link(name, path)

    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    monkeypatch.setattr(os, "link", claim)
    Query("parquet", str(tmp_path)).batch(0, ONE)
    assert claimed == [str(tmp_path / manifests.name(0))]


def test_a_file_system_without_links_takes_manifests_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    query = Query("parquet", str(tmp_path))
    assert query.batch(0, ONE)
    assert query.batch(1, TWO)
    assert values("parquet", str(tmp_path)) == ["a", "b"]
    with pytest.raises(FileExistsError):
        Store(str(tmp_path)).put_new(manifests.name(1), b"{}")
    assert values("parquet", str(tmp_path)) == ["a", "b"]
