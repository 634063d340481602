"""A long history fits into memory."""

import tracemalloc
from pathlib import Path
from typing import Any

from ottla.testing.checker import Get, Outcome, Produce, Read, Recorder, check_file

RECORDS = 4_000
BYTES_MAX = 900
"""An operation, all that it brings with it: as measured twice what it is."""


def write(path: Path) -> int:
    """A record is written, read by a consumer, and a key is read; then everything from three replicas."""
    operations = 0
    with Recorder(path) as history:
        for number in range(RECORDS):
            begin, value = number * 10, f"value-{number}"
            told: dict[str, Any] = {"topic": "t", "partition": 0, "outcome": Outcome.OK, "process": "p", "begin": begin}
            history.write(
                Produce(**told, value=value, offset=number, key="k", producer="p", sequence=number, end=begin + 2)
            )
            history.write(Read(**told, records=[(number, value)], start=number, next=number + 1, end=begin + 3))
            history.write(Get(topic="t", key="k", value=value, begin=begin + 3, end=begin + 4, outcome=Outcome.OK))
            operations += 3
        for replica in (1, 2, 3):
            there = [(number, f"value-{number}") for number in range(RECORDS)]
            told = {"topic": "t", "partition": 0, "outcome": Outcome.OK, "final": True, "replica": replica}
            history.write(Read(**told, records=there, start=0, next=RECORDS))
    return operations


def test_an_operation_takes_few_bytes(tmp_path: Path) -> None:
    operations = write(tmp_path / "h")
    tracemalloc.start()
    report = check_file(tmp_path / "h")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.valid, str(report)
    assert report.operations == operations + 3
    assert peak / operations < BYTES_MAX
