"""How far a query is, from the files that Spark 4.3 writes."""

import json
from pathlib import Path

import pytest

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs.checkpoint import Checkpoint, offsets_of


def write(directory: Path, batch: int, offsets: str, *, is_done: bool = True, watermark_ms: int = 0) -> None:
    for folder in ("offsets", "commits"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    about = json.dumps({"batchWatermarkMs": watermark_ms, "batchTimestampMs": 1000 + batch, "conf": {}})
    (directory / "offsets" / str(batch)).write_text(f"v1\n{about}\n{offsets}")
    (directory / "offsets" / f".{batch}.crc").touch()
    if is_done:
        (directory / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_a_directory_without_a_query_has_no_batches(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path / "none"))
    assert not checkpoint
    assert (checkpoint.last_done(), checkpoint.unfinished(), checkpoint.query_id()) == (None, None, None)


def test_the_newest_batch_that_is_done_says_how_far_the_query_is(tmp_path: Path) -> None:
    for batch in (2, 9, 10):
        write(tmp_path, batch, json.dumps({"t": {"0": 100 + batch}}), watermark_ms=7)
    write(tmp_path, 11, '{"t":{"0":500}}', is_done=False)
    done, unfinished = Checkpoint(f"file://{tmp_path}").last_done(), Checkpoint(str(tmp_path)).unfinished()
    assert done is not None
    assert done == (10, {("t", 0): 110}, 7, 1010, {})
    assert unfinished is not None
    assert (unfinished.batch, unfinished.offsets) == (11, {("t", 0): 500})


def test_a_batch_that_is_done_is_not_unfinished(tmp_path: Path) -> None:
    write(tmp_path, 0, '{"t":{"0":5}}')
    assert Checkpoint(str(tmp_path)).unfinished() is None


def test_sources_stand_a_line_each(tmp_path: Path) -> None:
    write(tmp_path, 0, '{"a":{"0":5}}\n-\n{"b":{"1":6}}')
    assert Checkpoint(str(tmp_path)).planned(0).offsets == {("a", 0): 5, ("b", 1): 6}


def test_a_checkpoint_of_files_is_no_checkpoint_of_topics(tmp_path: Path) -> None:
    write(tmp_path, 0, '{"logOffset":3}')
    with pytest.raises(CommandError, match="has no offsets of topics"):
        Checkpoint(str(tmp_path)).last_done()


def test_a_file_that_is_cut_off_is_said(tmp_path: Path) -> None:
    write(tmp_path, 0, "")
    (tmp_path / "offsets" / "0").write_text("v1\n{")
    with pytest.raises(CommandError, match="offsets/0 has no offsets"):
        Checkpoint(str(tmp_path)).last_done()


def test_the_query_has_its_id_from_its_first_start(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"53668e87"}')
    assert Checkpoint(str(tmp_path)).query_id() == "53668e87"


def test_offsets_are_the_connectors_json() -> None:
    assert offsets_of('{"t":{"1":5,"0":7}}') == offsets_of({"t": {"1": 5, "0": 7}}) == {("t", 1): 5, ("t", 0): 7}
    assert offsets_of(None) == {}


def test_a_file_that_spark_takes_away_meanwhile_hides_no_other(tmp_path: Path) -> None:
    """It keeps a hundred batches, and removes an old one's files with each new one."""
    for batch in (0, 1):
        write(tmp_path, batch, '{"t":{"0":5}}')
    (tmp_path / "offsets" / "2").symlink_to("gone")  # listed, and not there to be looked at
    assert Checkpoint(str(tmp_path)).planned_batches().keys() == {0, 1}
