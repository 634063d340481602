"""`ottla produce` and `consume`: words that are off, before anybody is asked. With brokers: tests/integration."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.cli import consume as consume_module
from ottla.cli.failures import CommandError
from ottla.cli.features import features


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


def test_a_partition_that_is_not_there_is_named() -> None:
    class Librdkafka:
        def list_topics(self, topic: str, timeout: float) -> Any:
            return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None, 1: None})})

    with pytest.raises(CommandError, match="t has no partition 7: it has 2"):
        consume_module._begin(Librdkafka(), "t", (1, 7), None, from_beginning=True)


def test_a_level_that_only_looks_like_a_number_is_a_usage_error() -> None:
    assert CliRunner().invoke(features, ["upgrade", "-f", "metadata.version=²"]).exit_code == 2
