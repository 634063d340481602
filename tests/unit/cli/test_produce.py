"""`ottla produce` and `consume`: words that are off, before anybody is asked. With brokers: tests/integration."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException

from ottla.cli import consume as consume_module
from ottla.cli.failures import CommandError
from ottla.cli.features import features
from ottla.cli.produce import produce


@pytest.mark.parametrize(
    "words",
    [
        ["--key-separator", ""],
        ["--partition", "99999999999"],
        ["--header", "name=\udcff"],
        ["--header", "\udcff=value"],
        ["\udcff"],
    ],
)
def test_what_no_record_can_have_is_a_usage_error(words: list[str]) -> None:
    topic = ["t"] * (len(words) > 1)
    script = "import sys; from ottla.cli.main import main; sys.argv[1:] = eval(sys.argv[1]); main()"
    given = ["produce", "-b", "localhost:1", *topic, *words]
    done = subprocess.run(
        [sys.executable, "-c", script, ascii(given)], input=b"k:v\n", capture_output=True, check=False
    )
    assert done.returncode == 2, done.stderr


@pytest.mark.parametrize("words", [["--partition", "99999999999"], ["--group", "\udcff"]])
def test_what_no_consumer_can_have_is_a_usage_error(words: list[str]) -> None:
    script = "import sys; from ottla.cli.main import main; sys.argv[1:] = eval(sys.argv[1]); main()"
    given = ["consume", "-b", "localhost:1", "t", *words]
    done = subprocess.run([sys.executable, "-c", script, ascii(given)], capture_output=True, check=False)
    assert done.returncode == 2, done.stderr


class Librdkafka:
    """Acknowledges or refuses what it was given when it is polled next. What begins with "large" it does not take."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.taken: list[tuple[bytes, Any]] = []

    def produce(self, topic: str, value: bytes, key: bytes | None, on_delivery: Any, **_more: Any) -> None:
        if value.startswith(b"large"):
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        self.taken.append((value, on_delivery))

    def poll(self, timeout: float) -> None:
        taken, self.taken = self.taken, []
        for value, on_delivery in taken:
            on_delivery(KafkaError(KafkaError.INVALID_RECORD) if value.startswith(b"bad") else None, None)

    def flush(self, timeout: float) -> int:
        self.poll(timeout)
        return 0


@pytest.mark.parametrize("line", [b"large", b"bad"])
def test_a_record_that_failed_ends_an_input_that_has_no_end(monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    monkeypatch.setattr(confluent_kafka, "Producer", Librdkafka)
    failure = CliRunner().invoke(produce, ["t"], input=b"one\ntwo\n" + line + b"\nlost\nlost\n").exception
    assert isinstance(failure, CommandError), failure
    assert str(failure).startswith("t: 1 record not acknowledged (Broker: ")
    assert str(failure).endswith("), 2 records acknowledged, and the lines behind were not sent")


def test_a_partition_that_is_not_there_is_named() -> None:
    class Topics:
        def list_topics(self, topic: str, timeout: float) -> Any:
            return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None, 1: None})})

    with pytest.raises(CommandError, match="t has no partition 7: it has 2"):
        consume_module._begin(Topics(), "t", (1, 7), None, from_beginning=True)


def test_a_level_that_only_looks_like_a_number_is_a_usage_error() -> None:
    assert CliRunner().invoke(features, ["upgrade", "-f", "metadata.version=²"]).exit_code == 2
