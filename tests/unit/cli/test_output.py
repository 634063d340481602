"""What commands print where there is no terminal, and how they read addresses."""

import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ottla.cli.failures import CommandError
from ottla.cli.log import log
from ottla.cli.log_print import print_all
from ottla.cli.main import main
from ottla.cli.output import bootstrap_option, cell, plain, show
from ottla.log.records import Record, encode_batch
from ottla.runtime.real_disk import RealDisk


def told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    """Exit code, and what went to standard error."""
    monkeypatch.setattr(sys, "argv", ["ottla", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code, capsys.readouterr().err


def test_a_dump_into_a_pipe_has_every_column_in_full(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = b"long " * 500
    (tmp_path / f"{0:020}.log").write_bytes(encode_batch([Record(0, 1_700_000_000_000, b"key", value)], base_offset=0))

    print_all((tmp_path,), "table", records=True)

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5  # the file; the batch and its record, each below its names
    assert "base_offset" in lines[1]
    assert "last_offset" in lines[1]
    assert value.decode() in lines[4]


@pytest.mark.parametrize("value", ["[red]hello", "[/red]", "a\\[b]"])
def test_what_looks_like_markup_in_a_record_is_dumped_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    (tmp_path / f"{0:020}.log").write_bytes(encode_batch([Record(0, 1, b"key", value.encode())], base_offset=0))

    print_all((tmp_path,), "table", records=True)

    assert f" {value} " in capsys.readouterr().out


@pytest.mark.parametrize("option", [(), ("--verify",)])
@pytest.mark.parametrize("names", [(), ("server.log", "server.properties", "pid", "data/"), ("node-1/", "node-2/")])
def test_a_directory_without_logs_is_not_called_sound(
    tmp_path: Path, names: tuple[str, ...], option: tuple[str, ...]
) -> None:
    for name in names:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).write_text("x")
    done = CliRunner().invoke(log, ["dump", str(tmp_path), *option])
    assert isinstance(done.exception, CommandError), done.exception
    assert "neither a partition's directory nor a log directory" in str(done.exception)


def test_a_file_that_is_no_log_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    done = CliRunner().invoke(log, ["dump", str(tmp_path / "notes.txt")])
    assert isinstance(done.exception, CommandError), done.exception


def test_a_partition_that_nobody_wrote_to_and_a_copy_of_one_are_sound(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    RealDisk().write_atomically(
        str(partition / "partition.metadata"), b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    for path in (tmp_path, partition):
        done = CliRunner().invoke(log, ["dump", str(path), "--verify"])
        assert done.exit_code == 0, done.exception


def test_a_table_into_a_pipe_is_a_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"replicas": list(range(1000))}], ["replicas"], "table")
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("name", ["g\nother  Stable", "g\x1b[2J", "g\r", "g\u202e", "g\u2028"])
def test_a_name_that_a_client_chose_cannot_pass_for_another_row(capsys: pytest.CaptureFixture[str], name: str) -> None:
    show([{"group": name, "members": [name]}], ["group", "members"], "table")
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert plain(name).isprintable()
    assert cell(name) == cell([name]) == plain(name) == name.encode("unicode_escape").decode()
    assert cell("Büro") == "Büro"


@pytest.mark.parametrize(
    ("given", "taken"),
    [("somewhere", "somewhere:9092"), ("a,b:9093, c", "a:9092,b:9093,c:9092"), ("[::1]", "[::1]:9092")],
)
def test_a_broker_without_a_port_listens_on_kafkas(given: str, taken: str) -> None:
    @click.command()
    @bootstrap_option
    def command(bootstrap: str) -> None:
        assert bootstrap == taken

    command(["-b", given], standalone_mode=False)


def test_an_address_that_is_none_is_refused_before_anyone_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["topics", "list"], ["consume", "topic"], ["metadata", "dump"]):
        code, line = told(monkeypatch, capsys, *words, "-b", "somewhere:x")
        assert code == 2
        assert "--bootstrap-server: 'somewhere:x' is not host:port" in line
