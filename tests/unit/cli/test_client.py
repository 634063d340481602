"""The client of the commands: what cannot be asked, whom else to ask, and answers that make no sense."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from ottla.broker.wire.apis import API_VERSIONS, BY_NAME
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.broker.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.broker.wire.messages.list_transactions_response import ListTransactionsResponse
from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.broker.wire.messages.metadata_response import MetadataResponse
from ottla.cli import client as cli_client
from ottla.cli.client import Client, NobodyAnswers
from ottla.cli.failures import CommandError
from ottla.cli.metrics import metrics

KEYS = [
    ApiVersion(API_VERSIONS, 0, 3),
    *(ApiVersion(BY_NAME[each].key, 0, 13) for each in ("Metadata", "ListTransactions")),
]


@contextmanager
def listening(*answers: bytes | None) -> Iterator[str]:
    """Somebody who gives each connection these answers, one a request, then closes it; None: who never answers."""

    def talk(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            for correlation_id, answer in enumerate(answers, 1):
                size = stream.read(4)
                stream.read(int.from_bytes(size, "big"))
                if answer is None:
                    stream.read()
                    return
                body = correlation_id.to_bytes(4, "big") + answer
                connection.sendall(len(body).to_bytes(4, "big") + body)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def greeting() -> bytes:
    return b"".join(bytes(each) for each in encoder(ApiVersionsResponse, 3)(ApiVersionsResponse(api_keys=KEYS)))


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (MetadataRequest([MetadataRequestTopic(name="\udcff")]), MetadataResponse),
        (ListTransactionsRequest(duration_filter=1 << 70), ListTransactionsResponse),
    ],
)
def test_what_no_request_can_hold_is_refused_in_a_line(
    request_: MetadataRequest, response: type[MetadataResponse]
) -> None:
    with (
        listening(greeting()) as address,
        Client(address) as client,
        pytest.raises(CommandError, match="cannot be asked"),
    ):
        client.call(request_, response)


def test_an_answer_that_makes_no_sense_is_told_in_a_line() -> None:
    with (
        listening(greeting(), b"\0\xff\xff\xff") as address,
        Client(address) as client,
        pytest.raises(CommandError, match="does not speak Kafka's protocol"),
    ):
        client.call(MetadataRequest(), MetadataResponse)


@pytest.mark.parametrize("first", [(), (None,), (b"\xff",)], ids=["closes", "is silent", "speaks otherwise"])
def test_where_the_first_does_not_answer_the_next_is_asked(
    monkeypatch: pytest.MonkeyPatch, first: tuple[bytes | None, ...]
) -> None:
    monkeypatch.setattr(cli_client, "CONNECT_TIMEOUT_S", 0.2)
    with listening(*first) as away, listening(greeting()) as there, Client(f"{away},{there}") as client:
        assert client.offers("Metadata")


def test_where_none_answers_each_is_named() -> None:
    with listening() as first, listening() as second, pytest.raises(NobodyAnswers) as told:
        Client(f"{first},{second}")
    assert first in str(told.value)
    assert second in str(told.value)


@pytest.mark.parametrize("host", ["ü..", "a" * 80])
def test_what_is_no_name_of_a_host_is_told_in_a_line(host: str) -> None:
    with pytest.raises(NobodyAnswers, match="no name of a host"):
        Client(f"{host}:9092")
    done = CliRunner().invoke(metrics, ["-l", f"{host}:9092"])
    assert isinstance(done.exception, CommandError), done.exception


def test_metrics_that_break_off_are_told_in_a_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b'HTTP/1.0 200 OK\r\nContent-Length: 900\r\n\r\n[{"name"')

        threading.Thread(target=serve, daemon=True).start()
        done = CliRunner().invoke(metrics, ["-l", f"127.0.0.1:{listener.getsockname()[1]}"])
    assert isinstance(done.exception, CommandError), done.exception
    assert "broke off" in str(done.exception)
