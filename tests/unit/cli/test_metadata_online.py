"""`ottla metadata` asked of something that is no controller of an Ottla cluster."""

import socket
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from ottla.broker.wire.codec import encoder
from ottla.broker.wire.headers import read_request_header
from ottla.broker.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.broker.wire.messages.response_header import ResponseHeader
from ottla.cli.failures import CommandError
from ottla.cli.metadata import metadata

FRAME_BYTES_MAX = 1 << 20


def serve(listener: socket.socket) -> None:
    """As Kafka's listeners do: what is no frame of the protocol ends the connection."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            answer(connection)


def answer(connection: socket.socket) -> None:
    size = int.from_bytes(connection.recv(4), "big")
    if size > FRAME_BYTES_MAX:
        return
    _, version, correlation_id, _, _ = read_request_header(memoryview(connection.recv(size)), 0)
    header = encoder(ResponseHeader, 0)(ResponseHeader(correlation_id))
    body = b"".join([*header, *encoder(ApiVersionsResponse, version)(ApiVersionsResponse())])
    connection.sendall(len(body).to_bytes(4, "big") + body)


@pytest.fixture
def kafkas_controller() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def refusal(controller: str) -> str:
    result = CliRunner().invoke(metadata, ["dump", "--bootstrap-controller", controller])
    assert isinstance(result.exception, CommandError), result.output
    return str(result.exception)


def test_a_controller_of_apache_kafkas_is_told_for_what_it_is(kafkas_controller: str) -> None:
    told = refusal(kafkas_controller)
    assert told.startswith(
        f"{kafkas_controller}: what answers there speaks Kafka's protocol and is no controller of Ottla's"
    )
    assert "kafka-metadata-shell.sh" in told


def test_where_nobody_listens_the_address_is_in_doubt() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert refusal(address) == f"{address}: no controller answers there: check the address, and that the node is up"
