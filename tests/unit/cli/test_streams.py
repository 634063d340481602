"""Whoever calls may have closed a standard stream: that is no mistake of ours to print a traceback of."""

import subprocess
import sys
from pathlib import Path

import pytest

CALL = "from ottla.cli.main import main; main()"
PRINTS_A_TABLE = """
import os, sys
seen = sys.argv.pop()
from ottla.cli import topics
from ottla.cli.main import main
def rows(_bootstrap):
    print(*(os.readlink(f"/proc/self/fd/{number}") for number in range(3)), file=open(seen, "w"))
    return [{"topic": "t"}]
from ottla.cli import topic_requests
topic_requests.topic_rows = rows
main()
"""


def run(script: str, *words: str, closed: str) -> tuple[int, str]:
    """Exit code, and what went to standard error where that is open. ``closed``: as the shell writes it."""
    call = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", script, *words]
    done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def test_a_table_is_for_nobody_where_standard_output_is_closed(tmp_path: Path) -> None:
    assert run(PRINTS_A_TABLE, "topics", "list", str(tmp_path / "seen"), closed=">&-") == (0, "")
    assert (tmp_path / "seen").read_text().split()[1] == "/dev/null"  # and no socket has its number


def test_closed_streams_are_nobodys_numbers(tmp_path: Path) -> None:
    assert run(PRINTS_A_TABLE, "topics", "list", str(tmp_path / "seen"), closed="<&- >&- 2>&-") == (0, "")
    assert (tmp_path / "seen").read_text().split() == ["/dev/null"] * 3


@pytest.mark.parametrize(
    ("words", "closed", "told"),
    [
        (("produce", "t"), "<&-", "ottla: standard input is closed: there are no lines to send\n"),
        (("consume", "t"), ">&-", "ottla: standard output is closed: there is nowhere to print the records\n"),
    ],
)
def test_what_lives_on_a_closed_stream_says_so(words: tuple[str, ...], closed: str, told: str) -> None:
    assert run(CALL, *words, "-b", "localhost:1", closed=closed) == (1, told)
