"""The table that our validator is held to is what Apache Kafka says."""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
COUNT = 3_000


def test_kafka_answers_strange_batches_as_the_table_says() -> None:
    table = (TESTS / "unit" / "log" / "batch_answers.txt").read_text().splitlines()
    command = [sys.executable, str(TESTS / "peers" / "kafka" / "answers.py"), str(COUNT)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
    assert len(found) == COUNT / 100
    assert found == table[: len(found)]
