"""What counts tells how far it is now and then, and nothing when it is done at once."""

import pytest

from ottla.pipeline.jobs.counting import Lines


def test_a_line_comes_every_five_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    lines = Lines("records", 1_000, lambda: now)
    for _ in range(6):
        now += 2
        lines.advance(100)
    assert capsys.readouterr().err.splitlines() == [
        "300 of 1,000 records, 50 a second, 14 s to go",
        "600 of 1,000 records, 50 a second, 8 s to go",
    ]
