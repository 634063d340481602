"""The log file of a node that runs for months."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli import server


@pytest.fixture
def log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As a node has it that was started, and by whom nothing was logged before."""
    handlers: list[logging.Handler] = []
    monkeypatch.setattr(logging.root, "handlers", handlers)
    monkeypatch.setattr(logging.root, "level", logging.INFO)
    path = tmp_path / "logs" / "server.log"
    path.parent.mkdir()
    server._log_to(str(path))
    yield path
    for handler in handlers:
        handler.close()


def test_a_log_file_that_is_rotated_away_is_begun_anew(log_file: Path) -> None:
    logging.info("before")
    kept = log_file.rename(log_file.with_suffix(".1"))
    assert not server._stderr_is(str(log_file))
    logging.info("after")
    assert kept.read_text().endswith(" before\n")
    assert log_file.read_text().endswith(" after\n")


def test_what_cannot_be_logged_does_not_end_what_it_tells_of(
    log_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_file.unlink()
    log_file.parent.rmdir()
    logging.info("nowhere")
    logging.info("nor this")
    assert "nowhere" in capsys.readouterr().err
    log_file.parent.mkdir()
    logging.info("back")
    assert log_file.read_text().endswith(" back\n")
