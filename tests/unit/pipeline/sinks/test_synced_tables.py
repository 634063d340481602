"""What is on the disk of a table in a folder, and when: whatever of its syncs fails, and wherever the process dies."""

import contextlib
import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.pipeline.sinks import parquet
from ottla.pipeline.sinks.errors import SinkError
from ottla.pipeline.sinks.table_write import Written
from tests.unit.pipeline.sinks.tables import FUNCTIONS, Query, batch, files, values

ONE, TWO = batch([("t", 0, 0, "a"), ("t", 0, 1, "b")]), batch([("t", 1, 7, "c")])
COMMITS = {"delta": "{}/_delta_log/{:020}.json", "parquet": "{}/_manifests/{:012}.json"}


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were, in order."""
    paths: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: paths.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    return paths


def test_what_is_committed_outlives_a_power_cut(form: str, tmp_path: Path, synced: list[str]) -> None:
    """Files before the commit that names them, all of them before Spark is told, and their names too."""
    table = tmp_path / "lake" / "table"
    query = Query(form, str(table), partitionBy="topic")
    for number, rows_ in enumerate((ONE, TWO)):
        del synced[:]
        written = [query.task(number, 0, [rows_])]
        parts = [str(table / file.path) for each in written for file in each.main.files]
        assert parts == [each for each in synced if each.endswith(".parquet")]
        assert query.commit(number, written)
        names = {os.path.dirname(each) for each in (*parts, COMMITS[form].format(table, number))}
        assert names < set(synced)
        assert COMMITS[form].format(table, number) in synced
        assert number or {str(table), str(table.parent)} < set(synced), "folders that are new"


def test_a_folder_that_cannot_be_synced_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert Query("parquet", str(tmp_path)).batch(0, ONE)


def test_a_disk_that_fails_at_the_end_fails_the_task(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    query = Query(form, str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match="Input/output error"):
            query.task(0, 0, [ONE])
    assert files(tmp_path) == set()
    assert query.batch(0, ONE)


def test_each_sync_may_fail_once_and_the_batch_is_there_once(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark aborts what failed, and runs the batch again."""
    for when in itertools.count(1):
        table, left, real = str(tmp_path / str(when)), [when], os.fsync

        def fsync(descriptor: int, left: list[int] = left, real: Callable[[int], None] = real) -> None:
            left[0] -= 1
            if not left[0]:
                raise OSError(errno.EIO, "Input/output error")
            real(descriptor)

        query, written = Query(form, table), list[Written]()
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fsync)
            try:
                written.append(query.task(0, 0, [ONE]))
                query.commit(0, written)
            except OSError:
                query.writer().abort(written)
        query.batch(0, ONE)
        assert query.batch(1, TWO)
        assert values(form, table) == ["a", "b", "c"]
        assert len(files(tmp_path / str(when))) == 2, "nothing of another attempt stays"
        if left[0] > 0:
            break
    assert when > 6


def test_a_replay_syncs_what_its_batch_died_before(form: str, tmp_path: Path, synced: list[str]) -> None:
    """Between the commit's name and its sync: Spark is told now that it is there."""
    query = Query(form, str(tmp_path))
    assert query.batch(0, ONE)
    del synced[:]
    assert not query.batch(0, ONE)
    assert COMMITS[form].format(tmp_path, 0) in synced


def test_a_compacted_table_is_on_the_disk_when_that_is_told(form: str, tmp_path: Path, synced: list[str]) -> None:
    query = Query(form, str(tmp_path))
    query.batch(0, ONE)
    query.batch(1, TWO)
    few = files(tmp_path)
    del synced[:]
    FUNCTIONS[form].compact(str(tmp_path))
    (one,) = {path for path in files(tmp_path) - few if path.endswith(".parquet")}
    assert {str(tmp_path / one), str(tmp_path), COMMITS[form].format(tmp_path, 2)} < set(synced)


def test_each_sync_of_a_compaction_may_fail_once_and_no_row_is_lost(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known by its commit, if that came; the next one finds the rest, or nothing to do."""
    for when in itertools.count(1):
        table, left, real = str(tmp_path / str(when)), [when], os.fsync

        def fsync(descriptor: int, left: list[int] = left, real: Callable[[int], None] = real) -> None:
            left[0] -= 1
            if not left[0]:
                raise OSError(errno.EIO, "Input/output error")
            real(descriptor)

        query = Query(form, table)
        for number, rows_ in enumerate((ONE, TWO)):
            query.batch(number, rows_)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fsync)
            with contextlib.suppress(OSError):
                FUNCTIONS[form].compact(table)
        assert FUNCTIONS[form].compact(table).files_after == 1
        assert values(form, table) == ["a", "b", "c"]
        if left[0] > 0:
            break
    assert when > 3


def test_a_compacted_file_is_on_the_disk_before_the_manifest_that_names_it(tmp_path: Path, synced: list[str]) -> None:
    query = Query("parquet", str(tmp_path))
    query.batch(0, ONE)
    query.batch(1, TWO)
    del synced[:]
    parquet.compact(str(tmp_path))
    (one,) = (number for number, path in enumerate(synced) if "part-compacted" in path)
    assert one < synced.index(COMMITS["parquet"].format(tmp_path, 2))


def test_what_a_power_cut_left_of_a_delta_commit_is_named(tmp_path: Path) -> None:
    """An empty entry is a version without changes; of zeros no reader makes anything."""
    Query("delta", str(tmp_path)).batch(0, ONE)
    entry = tmp_path / "_delta_log" / f"{1:020}.json"
    entry.write_bytes(bytes(300))
    with pytest.raises(SinkError, match=f"_delta_log/{entry.name}, is all zeros.*Remove that file"):
        Query("delta", str(tmp_path)).batch(1, TWO)
    entry.write_bytes(b"{ no JSON")
    with pytest.raises(SinkError, match=r"cannot be opened: .*[Jj]son[^\n]*$"):
        Query("delta", str(tmp_path)).batch(1, TWO)
    entry.write_bytes(b"")
    assert Query("delta", str(tmp_path)).batch(1, TWO)
    assert values("delta", str(tmp_path)) == ["a", "b", "c"]
