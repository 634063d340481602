"""A batch that failed is told by what it reads, and a checkpoint of other topics before it reads."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.failures import CommandError
from ottla.pipeline.fleet import topics
from ottla.pipeline.jobs.checkpoint import Checkpoint
from ottla.pipeline.jobs.generate import generate
from ottla.pipeline.jobs.launch import _told
from ottla.pipeline.jobs.streaming import failure, query_name, require_same_topics
from ottla.pipeline.jobs.words import InputWords, StreamWords
from ottla.pipeline.wire.errors import DeadlineError


def write(directory: Path, batch: int, *, is_done: bool, **topics: int) -> None:
    for folder in ("offsets", "commits"):
        (directory / folder).mkdir(exist_ok=True)
    offsets = {topic: {"0": offset} for topic, offset in topics.items()}
    (directory / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offsets)}")
    if is_done:
        (directory / "commits" / str(batch)).touch()


def test_the_batch_that_failed_names_topics_partitions_and_offsets(tmp_path: Path) -> None:
    write(tmp_path, 0, is_done=True, t=100, u=7)
    write(tmp_path, 1, is_done=False, t=150, u=7)
    assert failure(Checkpoint(str(tmp_path)), "no space.") == (
        "batch 1 failed: no space. It reads t-0 offsets 100 to 149; started again, the job reads the same"
    )


def test_the_first_batch_reads_from_where_nobody_wrote_down(tmp_path: Path) -> None:
    write(tmp_path, 0, is_done=False, t=100)
    assert "It reads t-0 offsets up to 99" in failure(Checkpoint(str(tmp_path)), "x")


def test_what_fails_between_batches_names_the_last_one(tmp_path: Path) -> None:
    assert failure(Checkpoint(str(tmp_path)), "x") == "failed before the first batch: x"
    write(tmp_path, 0, is_done=True, t=100)
    assert failure(Checkpoint(str(tmp_path)), "x") == "failed after batch 0: x"


def test_a_checkpoint_that_cannot_be_read_hides_no_failure(tmp_path: Path) -> None:
    write(tmp_path, 0, is_done=False, t=100)
    (tmp_path / "offsets" / "0").write_text("")
    assert failure(Checkpoint(str(tmp_path)), "x") == "x"


def test_topics_may_be_added_and_none_left_out_unless_said(tmp_path: Path) -> None:
    write(tmp_path, 0, is_done=True, t=100)
    checkpoint = Checkpoint(str(tmp_path))
    for words in (
        InputWords("b", ("t", "more")),
        InputWords("b", assign={"t": (0,)}),
        InputWords("b", pattern="x.*"),
        InputWords("b", ("other",), options={"failOnDataLoss": "false"}),
    ):
        require_same_topics(checkpoint, words)
    with pytest.raises(CommandError, match="is of t, and t is not asked for"):
        require_same_topics(checkpoint, InputWords("b", ("other",)))


def test_a_topics_id_is_no_topic(tmp_path: Path) -> None:
    write(tmp_path, 0, is_done=True, t=100)
    path = tmp_path / "offsets" / "0"
    path.write_text('v1\n{}\n{"t":{"0":100},"t:vTTfWh8LRHeFpfrjjIazTA":{}}')
    require_same_topics(Checkpoint(str(tmp_path)), InputWords("b", ("t",)))


def nobody_answers(*_: object, **__: object) -> None:
    raise DeadlineError("Metadata", 60, "broker (b:1): connect: Connection refused")


def test_a_cluster_that_is_not_there_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DeadlineError) as caught:
        nobody_answers()
    assert str(_told(caught.value)) == str(caught.value)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(topics, "prepare", nobody_answers)
    done = CliRunner().invoke(generate, ["--records", "1"])
    assert isinstance(done.exception, CommandError), done.exception


def test_a_query_has_the_name_that_was_said_or_its_jobs_and_topics() -> None:
    assert query_name("ingest", InputWords("b", ("t", "u")), StreamWords()) == "ingest-t-u"
    assert query_name("ingest", InputWords("b", ("t",)), StreamWords(name="mine")) == "mine"
