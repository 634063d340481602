"""Each batch once, whatever is killed and whatever comes again."""

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from ottla.pipeline.sinks.attempts import Attempt
from ottla.pipeline.sinks.changes import Batch
from ottla.pipeline.sinks.errors import NoSpace, OptionRefused, SchemaChanged, SinkError
from ottla.pipeline.sinks.store import Store
from tests.unit.pipeline.sinks.tables import ARROW, FUNCTIONS, Query, batch, files, rows, values

ONE = batch([("t", 0, 0, "a"), ("t", 0, 1, "b")])
TWO = batch([("t", 1, 7, "c")])
THREE = batch([("t", 0, 2, "d")])


def test_tasks_files_become_one_commit(form: str, tmp_path: Path) -> None:
    query = Query(form, str(tmp_path))
    written = [query.task(0, 0, [ONE]), query.task(0, 1, [TWO])]
    assert files(tmp_path)
    assert query.commit(0, written)
    assert values(form, str(tmp_path)) == ["a", "b", "c"]
    (commit,) = FUNCTIONS[form].commits(str(tmp_path))
    assert (commit.app_id, commit.batch, commit.rows) == ("q1", 0, 3)
    assert commit.offsets == {"t": {"0": [0, 1, 2], "1": [7, 7, 1]}}


def test_a_commit_keeps_what_its_writer_says(form: str, tmp_path: Path) -> None:
    assert Query(form, str(tmp_path), commitInfo='{"ends": 7}').batch(0, ONE)
    assert Query(form, str(tmp_path)).batch(1, TWO)
    assert [each.info for each in FUNCTIONS[form].commits(str(tmp_path))] == ['{"ends": 7}', ""]


def test_offsets_may_be_told_where_rows_do_not_say_them(form: str, tmp_path: Path) -> None:
    Query(form, str(tmp_path), offsets='{"u": {"3": [5, 9, 4]}}').batch(0, ONE)
    (commit,) = FUNCTIONS[form].commits(str(tmp_path))
    assert commit.offsets == {"u": {"3": [5, 9, 4]}}


def test_a_batch_that_comes_again_is_skipped_and_leaves_no_file(form: str, tmp_path: Path) -> None:
    query = Query(form, str(tmp_path))
    assert query.batch(0, ONE, TWO)
    before = files(tmp_path)
    assert not query.batch(0, ONE, TWO)
    assert files(tmp_path) == before
    assert query.batch(1, THREE)
    assert not query.batch(0, ONE)
    assert values(form, str(tmp_path)) == ["a", "b", "c", "d"]
    assert FUNCTIONS[form].last_version(str(tmp_path), "q1") == 1


def test_two_queries_batches_are_not_taken_for_each_other(form: str, tmp_path: Path) -> None:
    assert Query(form, str(tmp_path), "q1").batch(0, ONE)
    assert Query(form, str(tmp_path), "q2").batch(0, TWO)
    assert values(form, str(tmp_path)) == ["a", "b", "c"]


def test_an_aborted_batch_leaves_nothing(form: str, tmp_path: Path) -> None:
    query = Query(form, str(tmp_path))
    query.writer().abort([query.task(0, 0, [ONE]), None])
    assert files(tmp_path) == set()


def test_an_abort_behind_a_commit_that_failed_late_takes_nothing_away(form: str, tmp_path: Path) -> None:
    query = Query(form, str(tmp_path))
    written = [query.task(0, 0, [ONE])]
    query.commit(0, written)
    query.writer().abort(written)
    assert values(form, str(tmp_path)) == ["a", "b"]


def test_names_that_are_no_paths_are_found_again(form: str, tmp_path: Path) -> None:
    rows_ = batch([("u v%", 0, 0, "a"), ("ü#?+", 0, 1, "b"), ("a:b/c", 0, 2, "c"), ("[x]{*}", 0, 3, "d")])
    query = Query(form, str(tmp_path), partitionBy="topic")
    written = [query.task(0, 0, [rows_])]
    query.commit(0, written)
    query.writer().abort(written)
    assert all(os.path.exists(name) for name in FUNCTIONS[form].committed_files(str(tmp_path)))
    assert {(row["topic"], row["value"]) for row in rows(form, str(tmp_path))} == {
        ("u v%", "a"),
        ("ü#?+", "b"),
        ("a:b/c", "c"),
        ("[x]{*}", "d"),
    }


def test_a_commit_that_does_not_know_of_its_success_keeps_its_files(form: str, tmp_path: Path) -> None:
    query = Query(form, str(tmp_path))
    written = [query.task(0, 0, [ONE])]
    assert query.commit(0, written)
    assert not query.commit(0, written)
    assert values(form, str(tmp_path)) == ["a", "b"]


def test_a_task_that_fails_removes_what_it_wrote(form: str, tmp_path: Path) -> None:
    def failing() -> Any:
        yield ONE
        raise RuntimeError("the source is gone")

    query = Query(form, str(tmp_path), partitionBy="partition", targetFileRows="1")
    with pytest.raises(RuntimeError, match="the source is gone"):
        query.task(0, 0, failing())
    assert files(tmp_path) == set()


class Full:
    """A file on a disk that is full after the first bytes."""

    closed = False

    def __init__(self) -> None:
        self._size = 0

    def write(self, data: Any) -> int:
        if self._size:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def test_a_full_disk_is_named_and_nothing_of_the_attempt_stays(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(form, str(tmp_path))
    real = Store.create

    def create(self: Store, path: str) -> Any:
        real(self, path).close()
        return pa.PythonFile(Full(), mode="w")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "create", create)
        with pytest.raises(NoSpace, match="No space left for"):
            query.task(0, 0, [ONE])
    assert files(tmp_path) == set()
    assert query.batch(0, ONE)


def test_the_schema_of_a_table_stays(form: str, tmp_path: Path) -> None:
    Query(form, str(tmp_path)).batch(0, ONE)
    more = ARROW.append(pa.field("extra", pa.int64()))
    with pytest.raises(SchemaChanged, match="the rows also have extra"):
        Query(form, str(tmp_path), schema=more).writer()
    with pytest.raises(SchemaChanged, match="the rows lack value"):
        Query(form, str(tmp_path), schema=pa.schema(list(ARROW)[:-1])).writer()
    other = ARROW.set(4, pa.field("value", pa.int64()))
    with pytest.raises(SchemaChanged, match="value is string there and long here"):
        Query(form, str(tmp_path), schema=other, mergeSchema="true").writer()
    twin = ARROW.append(pa.field("Value", pa.string()))
    with pytest.raises(SchemaChanged, match="differ in case only"):
        Query(form, str(tmp_path), schema=twin, mergeSchema="true").writer()
    with pytest.raises(SchemaChanged, match="partitioned by nothing, the rows by topic"):
        Query(form, str(tmp_path), partitionBy="topic").writer()


def test_new_columns_come_and_missing_ones_are_null_if_told_so(form: str, tmp_path: Path) -> None:
    Query(form, str(tmp_path)).batch(0, ONE)
    more = ARROW.append(pa.field("extra", pa.int64()))
    wider = TWO.append_column("extra", pa.array([5]))
    assert Query(form, str(tmp_path), schema=more, mergeSchema="true").batch(1, wider)
    assert Query(form, str(tmp_path), mergeSchema="true").batch(2, THREE)
    found = {row["value"]: row.get("extra") for row in rows(form, str(tmp_path))}
    assert found == {"a": None, "b": None, "c": 5, "d": None}
    with pytest.raises(SchemaChanged, match="the rows lack extra"):
        Query(form, str(tmp_path)).writer()


def test_rows_go_to_the_folders_of_their_partitions(form: str, tmp_path: Path) -> None:
    mixed = batch([("t", 0, 0, "a"), ("u v%", 0, 0, "b"), ("t", 1, 0, "c"), ("", 1, 1, "d"), ("t", 0, 1, "e")])
    assert Query(form, str(tmp_path), partitionBy="topic,partition").batch(0, mixed)
    folders = {str(Path(name).parent) for name in files(tmp_path)}
    assert folders == {
        "topic=t/partition=0",
        "topic=t/partition=1",
        "topic=u v%25/partition=0",
        "topic=__HIVE_DEFAULT_PARTITION__/partition=1",
    }
    found = {(row["topic"], row["partition"], row["value"]) for row in rows(form, str(tmp_path))}
    assert found == {("t", 0, "a"), ("t", 0, "e"), ("t", 1, "c"), ("u v%", 0, "b"), (None, 1, "d")}


def test_days_that_python_has_not_are_named_as_spark_names_them(form: str, tmp_path: Path) -> None:
    """As of a producer that took microseconds for milliseconds."""
    schema = ARROW.append(pa.field("day", pa.date32()))
    days = pa.array([10_000_000, 0, -719_562], pa.int32()).cast(pa.date32())
    three = batch([("t", 0, 0, "a"), ("t", 0, 1, "b"), ("t", 0, 2, "c")]).append_column("day", days)
    assert Query(form, str(tmp_path), schema=schema, partitionBy="day").batch(0, three)

    assert {str(Path(each).parent) for each in files(tmp_path)} == {
        "day=+29349-01-26",
        "day=1970-01-01",
        "day=-0001-11-28",
    }


@pytest.mark.parametrize("by", ["", "kind"])
def test_texts_that_are_no_utf8_are_written_as_they_are(by: str, form: str, tmp_path: Path) -> None:
    """Spark's cast of bytes to a string lets them be, and names a partition with U+FFFD for them."""
    odd = pa.array([b"\xff", b"t"]).view(pa.string())
    two = batch([("t", 0, 0, "a"), ("t", 0, 1, "b")]).set_column(4, "value", odd).append_column("kind", odd)
    query = Query(form, str(tmp_path), schema=ARROW.append(pa.field("kind", pa.string())), partitionBy=by)
    assert query.batch(0, two)

    found = [pq.ParquetFile(tmp_path / each).read(["value"])["value"].cast(pa.binary()) for each in files(tmp_path)]
    assert sorted(value for each in found for value in each.to_pylist()) == [b"t", b"\xff"]
    assert {str(Path(each).parent) for each in files(tmp_path)} == ({"kind=t", "kind=%EF%BF%BD"} if by else {"."})


def test_files_end_at_their_size(form: str, tmp_path: Path) -> None:
    query = Query(form, str(tmp_path), targetFileRows="2")
    query.commit(0, [query.task(0, 0, [ONE, THREE, ONE, TWO])])
    assert len(files(tmp_path)) == 3


def test_rows_that_do_not_parse_go_to_a_table_of_their_own(form: str, tmp_path: Path) -> None:
    schema = ARROW.append(pa.field("_corrupt", pa.string()))
    rows_ = batch([("t", 0, 0, "a"), ("t", 0, 1, "b")]).append_column("_corrupt", pa.array([None, "no JSON"]))
    main, dead = tmp_path / "main", tmp_path / "dead"
    query = Query(
        form,
        str(main),
        schema=schema,
        deadLetterPath=str(dead),
        deadLetterColumn="_corrupt",
        batchColumn="_batch",
        partitionBy="topic",
    )
    assert query.batch(4, rows_)
    assert not query.batch(4, rows_)
    (good,) = rows(form, str(main))
    (bad,) = rows(form, str(dead))
    assert (good["value"], good["_batch"], "_corrupt" in good) == ("a", 4, False)
    assert (bad["value"], bad["_batch"], bad["_corrupt"]) == ("b", 4, "no JSON")
    assert FUNCTIONS[form].commits(str(dead))[0].offsets == {"t": {"0": [1, 1, 1]}}


def test_the_bytes_that_do_not_parse_are_in_the_dead_letters_only(form: str, tmp_path: Path) -> None:
    schema = ARROW.append(pa.field("_corrupt", pa.string()))
    rows_ = ONE.append_column("_corrupt", pa.array([None, "no JSON"]))
    main, dead = str(tmp_path / "main"), str(tmp_path / "dead")
    more = {"deadLetterPath": dead, "deadLetterColumn": "_corrupt", "deadLetterOnly": "value"}
    query = Query(form, main, schema=schema, **more)
    assert query.batch(0, rows_)
    assert query.batch(1, rows_.slice(0, 1))
    assert ["value" in row for row in rows(form, main)] == [False, False]
    assert [row["value"] for row in rows(form, dead)] == ["b"]


def test_a_kill_between_the_two_tables_is_made_up_by_the_replay(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = ARROW.append(pa.field("_corrupt", pa.string()))
    rows_ = ONE.append_column("_corrupt", pa.array([None, "no JSON"]))
    main, dead = str(tmp_path / "main"), str(tmp_path / "dead")
    query = Query(form, main, schema=schema, deadLetterPath=dead, deadLetterColumn="_corrupt")
    log = type(query.writer()._log(Store(main)))
    real = log.commit

    def commit(self: Any, batch: Batch) -> bool:
        if self._store.uri == main:
            raise KeyboardInterrupt
        return bool(real(self, batch))

    with monkeypatch.context() as patched:
        patched.setattr(log, "commit", commit)
        with pytest.raises(KeyboardInterrupt):
            query.batch(0, rows_)
    assert query.batch(0, rows_)
    assert (values(form, main), values(form, dead)) == (["a"], ["b"])


def test_a_complete_result_takes_the_place_of_the_one_before(form: str, tmp_path: Path) -> None:
    query = Query(form, str(tmp_path))
    query.batch(0, ONE, overwrite=True)
    query.batch(1, TWO, overwrite=True)
    assert not query.batch(1, TWO, overwrite=True)
    assert values(form, str(tmp_path)) == ["c"]
    query.commit(2, [], overwrite=True)
    assert values(form, str(tmp_path)) == []


def test_small_files_become_large_ones_beside_a_query(form: str, tmp_path: Path) -> None:
    query = Query(form, str(tmp_path), partitionBy="partition")
    for number, rows_ in enumerate((ONE, THREE, TWO)):
        query.batch(number, rows_)
    pending = query.task(3, 0, [batch([("t", 1, 8, "e")])])
    done = FUNCTIONS[form].compact(str(tmp_path))
    assert (done.files_before, done.files_after) == (3, 2)
    query.commit(3, [pending])
    assert values(form, str(tmp_path)) == ["a", "b", "c", "d", "e"]
    assert not query.batch(2, TWO)


def test_vacuum_takes_what_killed_attempts_left_and_nothing_else(form: str, tmp_path: Path) -> None:
    query = Query(form, str(tmp_path), partitionBy="partition")
    query.batch(0, ONE, TWO)
    before = files(tmp_path)
    query.task(1, 0, [THREE])  # killed here
    functions = FUNCTIONS[form]
    assert functions.vacuum(str(tmp_path)) == []
    assert len(functions.vacuum(str(tmp_path), older_than_hours=0, dry_run=True)) == 1
    assert len(functions.vacuum(str(tmp_path), older_than_hours=0)) == 1
    assert files(tmp_path) == before
    assert query.batch(1, THREE)
    assert values(form, str(tmp_path)) == ["a", "b", "c", "d"]


def test_a_table_of_another_format_is_not_written_into(form: str, tmp_path: Path) -> None:
    Query(form, str(tmp_path)).batch(0, ONE)
    before = files(tmp_path)
    (other,) = FUNCTIONS.keys() - {form}
    with pytest.raises(SinkError, match="already: write in its format, or to another path"):
        Query(other, str(tmp_path), query="q2").batch(0, TWO)
    assert files(tmp_path) == before


def test_vacuum_leaves_what_a_query_may_keep_in_the_tables_folder(form: str, tmp_path: Path) -> None:
    kept = tmp_path / "_checkpoint" / "offsets" / "0"
    Query(form, str(tmp_path), checkpointLocation=str(tmp_path / "_checkpoint")).batch(0, ONE)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"")
    FUNCTIONS[form].vacuum(str(tmp_path), older_than_hours=0)
    assert kept.exists()


def test_a_write_without_a_name_appends_each_time(form: str, tmp_path: Path) -> None:
    query = Query(form, str(tmp_path), query="")
    assert query.batch(0, ONE)
    assert query.batch(0, TWO)
    assert values(form, str(tmp_path)) == ["a", "b", "c"]


def test_a_writer_travels_to_the_tasks(form: str, tmp_path: Path) -> None:
    query = Query(form, str(tmp_path))
    writer = pickle.loads(pickle.dumps(query.writer()))
    written = pickle.loads(pickle.dumps(writer.write([ONE], Attempt("q1", 0, 0, 0))))
    assert query.commit(0, [written])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"partitionBy": "nothing"}, "the rows have no such column"),
        ({"partitionBy": "timestamp"}, "cannot be partitioned by timestamp"),
        ({"compression": "brotli"}, "it is one of zstd"),
        ({"offsets": '{"t": {"0": [1]}}'}, "it is JSON like"),
        ({"mergeSchema": "yes"}, "it is true or false"),
        ({"targetFileBytes": "0"}, "a number above 0"),
        ({"deadLetterPath": "x"}, "go together"),
        (
            {"deadLetterPath": "x", "deadLetterColumn": "value", "deadLetterOnly": "z"},
            "deadLetterOnly=z: the rows have no such",
        ),
        ({"path": "x", "deadLetterPath": "./x/", "deadLetterColumn": "value"}, "that is the table itself"),
        ({"path": "x", "deadLetterPath": "x/dead", "deadLetterColumn": "value"}, "goes with its vacuum: put it beside"),
        ({"path": "file:///x/y", "deadLetterPath": "/x", "deadLetterColumn": "value"}, "goes with its vacuum"),
        ({"path": "x", "checkpointLocation": "x/checkpoint/1"}, "put it beside, or call it _checkpoint"),
        ({"txnAppId": "x"}, "go together"),
        ({"txnAppId": "x", "txnVersion": "-1"}, "it is a number"),
        ({"batchColumn": "value"}, "have a column of that name"),
        ({"path": ""}, "Say where the table is"),
        ({"partitonBy": "topic"}, "there is no option partitonby; is partitionBy meant"),
        ({"zOrder": "topic"}, "there is no option zorder; see docs/pipeline.md"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(OptionRefused, match=said):
        Query(
            "parquet", options.get("path", str(tmp_path)), **{n: v for n, v in options.items() if n != "path"}
        ).writer()


STEPS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "before the manifest is begun": lambda patch: patch.setattr(Store, "put_new", _killed),
    "before it takes its name": lambda patch: patch.setattr(Store, "_claim", _killed),
    "before its first name is removed": lambda patch: patch.setattr(Store, "delete", _killed),
}


def _killed(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_between_any_two_steps_loses_and_doubles_nothing(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query("parquet", str(tmp_path))
    query.batch(0, ONE)
    with monkeypatch.context() as patched:
        STEPS[step](patched)
        with pytest.raises(KeyboardInterrupt):
            query.batch(1, TWO)
    was_there = step == "before its first name is removed"
    assert values("parquet", str(tmp_path)) == (["a", "b", "c"] if was_there else ["a", "b"])
    assert query.batch(1, TWO) is not was_there
    assert query.batch(2, THREE)
    assert values("parquet", str(tmp_path)) == ["a", "b", "c", "d"]
    FUNCTIONS["parquet"].vacuum(str(tmp_path), older_than_hours=0)
    assert not [name for name in os.listdir(tmp_path / "_manifests") if name.startswith(".")]
    assert values("parquet", str(tmp_path)) == ["a", "b", "c", "d"]
