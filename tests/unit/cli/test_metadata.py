"""`ottla metadata` on a directory: what it prints, and how it refuses."""

import base64
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from ottla.cli.failures import CommandError
from ottla.cli.metadata import metadata
from ottla.cli.metadata_shell import Shell
from ottla.quorum.batches import encode_values
from ottla.quorum.control_records import control_batch
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.history import at
from ottla.quorum.raft.instructions import AppendControl, LeaderChange
from ottla.quorum.raft.voters import ReplicaKey
from tests.unit.quorum.metadata.conftest import MetadataDirectory
from tests.unit.quorum.metadata.metadata_story import STORY

LAST = STORY[-1].last_offset


@pytest.fixture
def directory(tmp_path: Path) -> MetadataDirectory:
    return MetadataDirectory(tmp_path / "__cluster_metadata-0")


@pytest.fixture
def story(directory: MetadataDirectory) -> MetadataDirectory:
    directory.add(STORY)
    return directory


def run(directory: MetadataDirectory, *words: str, input: str | None = None) -> Result:
    command, *rest = words
    return CliRunner().invoke(metadata, [command, "-d", str(directory.path.parent), *rest], input=input)


def printed(directory: MetadataDirectory, *words: str) -> Any:
    """What a program gets."""
    result = run(directory, *words, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(result: Result) -> str:
    assert isinstance(result.exception, CommandError), result.output
    return str(result.exception)


# --- dump -------------------------------------------------------------------------------------------------------------


def test_dump_tells_each_batch_with_its_cause_and_records(story: MetadataDirectory) -> None:
    lines = run(story, "dump").stdout.splitlines()
    assert lines[2].split() == [*["1", "epoch", "3", "1970-01-01", "00:00:01.000Z", "create_topics", "by", "ann"]]
    assert lines[4].split()[:5] == [
        "2",
        "partition",
        "topic=topic-1",
        "topic_id=dG9waWMAAAAAAAAAAAAAAQ",
        "partition_id=0",
    ]
    change = next(line for line in lines if "partition_change" in line)
    assert "topic=topic-1" in change
    assert "isr=2,3 leader=2" in change


def test_dump_for_programs_is_a_line_a_batch(story: MetadataDirectory) -> None:
    result = run(story, "dump", "-o", "json", "--from", "5", "--to", "6")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["offset"], row["last_offset"], row["cause"]) for row in rows] == [
        (4, 5, "the session of broker 1 is over"),
        (6, 6, "alter_partition by broker 2"),
    ]
    assert rows[1]["records"][0]["kind"] == "partition_change"
    assert rows[1]["records"][0]["fields"]["isr"] == [2, 3, 1]
    assert rows[1]["records"][0]["fields"]["topic"] == "topic-1", "known from before --from"


def test_dump_decodes_the_quorums_own_records(directory: MetadataDirectory) -> None:
    elected = LeaderChange(1, (ReplicaKey(1), ReplicaKey(2)), (1, 2))
    file = directory.path / f"{0:020d}.log"
    file.write_bytes(control_batch(AppendControl(0, 7, (elected,)), 0) + encode_values([b"\xff"], 1, 7, 0, ""))
    result = run(directory, "dump")
    assert "leader_change              leader_id=1" in result.stdout
    assert result.exit_code == 1, "the second record is none"
    assert "not a metadata record" in refused(result)


def test_a_directory_of_apache_kafkas_is_told_for_what_it_is(directory: MetadataDirectory) -> None:
    record = base64.b64decode("AQUCAAAABgsPzQUSd0k3gUeAyyo2jYkEAAEBAQT/////BgUCAAAAAQcFAgAAAAE=")  # a partition change
    directory.add([CommittedBatch(0, 0, 1, 0, [record])])
    assert refused(run(directory, "dump")) == (
        "the log cannot be followed: a metadata record of Apache Kafka's: ottla log dump prints those"
    )


def test_a_dump_that_ends_before_it_begins_is_refused(story: MetadataDirectory) -> None:
    refused = run(story, "dump", "--from", "50", "--to", "10")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--from 50 --to 10: that ends before it begins" in refused.stderr
    assert run(story, "dump", "--from", "1", "--to", "1").exit_code == 0


# --- at, diff ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "topics"),
    [("2", []), ("3", ["topic-1"]), ("latest", ["topic-2"]), ("1970-01-01T00:00:08.9", ["topic-1", "topic-2"])],
)
def test_at_shows_the_cluster_as_it_was(story: MetadataDirectory, moment: str, topics: list[str]) -> None:
    image = printed(story, "at", moment)
    assert list(image["topics"]) == topics
    assert list(image["cluster"]["brokers"]) == ["1"]


def test_at_is_a_table_for_people(story: MetadataDirectory) -> None:
    lines = run(story, "at", "6").stdout.splitlines()
    assert lines[0].strip() == "at offset 6, epoch 3"
    row = next(line for line in lines if line.startswith("topic-1"))
    assert row.split()[:4] == ["topic-1", "2", "0", "0"]


@pytest.mark.parametrize("moment", ["17", "99999999999999999999"])
def test_an_offset_out_of_range_is_told_the_range(story: MetadataDirectory, moment: str) -> None:
    assert refused(run(story, "at", moment)) == f"offset {moment} is out of range: the log has 0 to {LAST}"


def test_a_time_before_the_log_is_told_when_it_begins(story: MetadataDirectory) -> None:
    assert (
        refused(run(story, "at", "1969-01-01"))
        == "1969-01-01 is out of range: the log begins at 1970-01-01 00:00:00.000Z"
    )


@pytest.mark.parametrize("words", ["yesterday", "²"])
def test_words_that_are_no_moment_are_a_usage_error(story: MetadataDirectory, words: str) -> None:
    result = run(story, "at", words)
    assert result.exit_code == 2
    assert "write an offset, a time such as" in result.output


@pytest.mark.parametrize(
    ("before", "after", "old", "new"), [("4", "5", "leader 1", "leader 2"), ("5", "3", "leader 2", "leader 1")]
)
def test_diff_works_in_both_directions(story: MetadataDirectory, before: str, after: str, old: str, new: str) -> None:
    rows = printed(story, "diff", before, after)
    first = rows[0]
    assert (first["kind"], first["name"]) == ("partition", "topic-1-0")
    assert first["before"].startswith(old), "offset 4 lies inside a batch, which is applied whole or not at all"
    assert first["after"].startswith(new)


def test_diff_says_when_nothing_differs(story: MetadataDirectory) -> None:
    assert run(story, "diff", "7", "7").stdout == "nothing differs\n"
    assert printed(story, "diff", "7", "7") == []


# --- blame ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["topic-1/0", "topic-1-0"])
def test_blame_tells_the_life_of_a_partition(story: MetadataDirectory, name: str) -> None:
    rows = printed(story, "blame", name)
    assert [(row["offset"], row["cause"]) for row in rows] == [
        (2, "create_topics by ann"),
        (4, "the session of broker 1 is over"),
        (6, "alter_partition by broker 2"),
        (7, "leaders return"),
        (16, "delete_topics by bob"),
    ]
    assert (rows[1]["leader"], rows[1]["in sync"], rows[1]["time"]) == (2, [2, 3], "1970-01-01 00:00:02.000Z")
    assert "the session of broker 1 is over" in run(story, "blame", name).stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("topic-2/7", "there is no partition topic-2/7: topic-2 has 0 to 1"),
        ("topic-9/0", "there is no topic topic-9, nor was there since offset 0"),
    ],
)
def test_a_partition_that_never_was_is_refused(story: MetadataDirectory, name: str, message: str) -> None:
    assert refused(run(story, "blame", name)) == message


@pytest.mark.parametrize("name", ["flights", "/0", "flights/x", "flights/²"])
def test_words_that_name_no_partition_are_a_usage_error(story: MetadataDirectory, name: str) -> None:
    assert run(story, "blame", name).exit_code == 2


# --- after log compaction ---------------------------------------------------------------------------------------------


@pytest.fixture
def compacted(directory: MetadataDirectory) -> MetadataDirectory:
    """The story from offset 6 on."""
    directory.add(STORY[3:], base=6)
    directory.snapshot(at(STORY, 5), 6, 3)
    return directory


def test_after_compaction_it_is_said_that_history_is_gone(compacted: MetadataDirectory) -> None:
    assert run(compacted, "dump").stdout.startswith("the log before offset 6 is gone")
    assert refused(run(compacted, "at", "4")) == (
        f"offset 4 is out of range: the log has 5 to {LAST} (a snapshot ends at 5; what was before is gone)"
    )
    assert list(printed(compacted, "at", "5")["topics"]) == ["topic-1"]
    rows = printed(compacted, "blame", "topic-1/0")
    assert (rows[0]["offset"], rows[0]["leader"]) == (5, 2)
    assert rows[0]["what"] == "so it was in the snapshot; what came before is gone"
    assert [row["offset"] for row in rows[1:]] == [6, 7, 16]


# --- the source -------------------------------------------------------------------------------------------------------


def test_a_directory_without_a_metadata_log_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(metadata, ["dump", "-d", str(tmp_path)])
    assert refused(result) == f"{tmp_path} holds no __cluster_metadata-0: give the node's metadata.log.dir or log.dirs"


def test_two_sources_are_a_usage_error(story: MetadataDirectory) -> None:
    assert run(story, "dump", "--bootstrap-controller", "localhost:1").exit_code == 2


# --- the shell --------------------------------------------------------------------------------------------------------


def test_the_shell_carries_out_one_command(story: MetadataDirectory) -> None:
    result = run(story, "shell", "--at", "6", "cat", "/image/topics/byName/topic-1/0")
    assert json.loads(result.stdout)["isr"] == [2, 3, 1]


def test_the_shell_reads_commands_from_a_pipe(story: MetadataDirectory) -> None:
    script = "cd image/topics/byName\nls\npwd\nat 6\nls ..\nls *\ncd\npwd\n\nexit\nls"
    assert run(story, "shell", input=script).stdout.splitlines() == [
        "topic-2", "/image/topics/byName", "at offset 6", "byName", "byId", "id", "name", "0", "1", "/",
    ]  # fmt: skip


def test_a_bad_command_in_a_pipe_ends_the_shell(story: MetadataDirectory) -> None:
    assert refused(run(story, "shell", input="ls\nfly\nls\n")) == "fly: no such command; `help` lists them"


class TestShell:
    """The commands themselves."""

    def shell(self) -> tuple[Shell, list[str]]:
        lines: list[str] = []
        shell = Shell(lambda moment: at(STORY, int(moment)), lambda text: lines.extend(text.splitlines()))
        shell.run_line(["at", "13"], quiet=True)
        return shell, lines

    def test_find_prints_every_path_below(self) -> None:
        shell, lines = self.shell()
        shell.run_line(["find", "/image/topics/byName/topic-2"])
        assert lines == [f"/image/topics/byName/topic-2{tail}" for tail in ("", "/id", "/name", "/0", "/1")]

    def test_tree_prints_files_with_their_contents(self) -> None:
        shell, lines = self.shell()
        shell.run_line(["tree", "/image/producerIds"])
        assert lines == ["nextProducerId: 0"]

    def test_stars_match_within_a_name(self) -> None:
        shell, lines = self.shell()
        shell.run_line(["ls", "/image/topics/byName/topic-*"])
        assert lines[0] == "/image/topics/byName/topic-1:"
        assert "/image/topics/byName/topic-2:" in lines
        lines.clear()
        shell.run_line(["cat", "/image/topics/byName/*/name"])
        assert lines == ["topic-1", "topic-2"]

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("ls /nowhere/else", "/nowhere: no such file or directory"),
            ("ls /image/topics/byName/topic-1/77", "/image/topics/byName/topic-1/77: no such file or directory"),
            ("ls /image/topics/byName/topic-1/x", "/image/topics/byName/topic-1/x: no such file or directory"),
            ("cat /image", "/image is a directory"),
            ("cat", "cat: give a path"),
            ("cd /image/provenance", "/image/provenance is no directory"),
            ("ls /image/provenance/offset", "/image/provenance is no directory"),
            ("cd a b", "give one path"),
            ("ls /image/topics/byName/q*", "/image/topics/byName/q*: nothing matches"),
            ("at", "at: give one moment: an offset, a time, or latest"),
        ],
    )
    def test_what_cannot_be_done_is_said(self, line: str, message: str) -> None:
        shell, _ = self.shell()
        with pytest.raises(CommandError) as refusal:
            shell.run_line(line.split())
        assert str(refusal.value) == message

    def test_paths_are_completed(self) -> None:
        shell, _ = self.shell()
        assert shell.completions("ima") == ["image"]
        assert shell.completions("/image/topics/by") == ["/image/topics/byName", "/image/topics/byId"]
        assert shell.completions("/nowhere/") == []


def test_the_commands_are_listed_with_their_help() -> None:
    result = CliRunner().invoke(metadata, ["--help"])
    assert isinstance(metadata, click.Group)
    assert [name for name in ("dump", "shell", "at", "diff", "blame") if name in result.output] == [
        "dump", "shell", "at", "diff", "blame",
    ]  # fmt: skip
