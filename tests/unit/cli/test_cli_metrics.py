"""`ottla metrics` against a listener that the test holds."""

import json
import socket
import threading
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from ottla.cli.failures import CommandError
from ottla.cli.metrics import metrics

FAMILIES = [
    {
        "name": "kafka_server_replicamanager_isrshrinks_total",
        "kind": "counter",
        "help": "Shrinks.",
        "samples": [{"labels": {}, "value": 3}],
    },
    {
        "name": "ottla_log_directory_full",
        "kind": "gauge",
        "help": "Full.",
        "samples": [
            {"labels": {"logDirectory": "/data"}, "value": 1.0},
            {"labels": {"logDirectory": "/b"}, "value": 0.25},
        ],
    },
]
Serve = Callable[[bytes], str]


@pytest.fixture
def serve() -> Serve:
    """Answers one connection with these bytes; returns where."""

    def start(answer: bytes) -> str:
        listening = socket.create_server(("127.0.0.1", 0))

        def run() -> None:
            with listening, listening.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        threading.Thread(target=run, daemon=True).start()
        return f"127.0.0.1:{listening.getsockname()[1]}"

    return start


def page(families: object) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + json.dumps(families).encode()


def run(*words: str) -> str:
    result = CliRunner().invoke(metrics, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_person_gets_a_row_a_sample(serve: Serve) -> None:
    lines = run("--listener", serve(page(FAMILIES))).splitlines()
    assert [line.split() for line in lines] == [
        ["metric", "labels", "value"],
        ["kafka_server_replicamanager_isrshrinks_total", "-", "3"],
        ["ottla_log_directory_full", "logDirectory=/data", "1"],
        ["ottla_log_directory_full", "logDirectory=/b", "0.25"],
    ]


def test_words_choose_by_name_whatever_their_case(serve: Serve) -> None:
    lines = run("ISR", "lag", "--listener", serve(page(FAMILIES))).splitlines()
    assert len(lines) == 2
    assert "isrshrinks" in lines[1]


def test_a_program_gets_help_and_kind_too(serve: Serve) -> None:
    (row,) = json.loads(run("isr", "-o", "json", "--listener", serve(page(FAMILIES))))
    assert row == {
        "metric": "kafka_server_replicamanager_isrshrinks_total",
        "labels": [],
        "value": 3,
        "kind": "counter",
        "help": "Shrinks.",
    }


@pytest.mark.parametrize(
    ("words", "answer", "message"),
    [
        (("nothing",), page(FAMILIES), "no metric has nothing in its name"),
        ((), b"HTTP/1.1 500 Internal Server Error\r\n\r\n", "500 Internal Server Error"),
        ((), b"\x00\x00\x00\x05", "is no metrics listener"),
        ((), b"", "it closed the connection"),
    ],
)
def test_what_cannot_be_is_one_line(serve: Serve, words: tuple[str, ...], answer: bytes, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        run(*words, "--listener", serve(answer))


def test_a_node_without_a_listener_is_told_with_the_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(CommandError, match=r"nobody tells metrics at 127.0.0.1:\d+ .*ottla.metrics.listener"):
        run("--listener", f"127.0.0.1:{port}")
