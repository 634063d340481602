"""A connection to a broker that does not do its part."""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.broker.wire.codec import encoder
from ottla.broker.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.broker.wire.messages.metadata_response import MetadataResponse
from ottla.pipeline.wire.connection import Connection
from ottla.pipeline.wire.errors import (
    BrokerError,
    BrokerUnreachableError,
    ConnectionLostError,
    RequestTimedOutError,
    UnsupportedApiError,
)
from ottla.pipeline.wire.settings import ClientSettings

Answer = Callable[[int, int], bytes | None]  # (API key, correlation id) -> what is sent, None: the connection ends


@contextmanager
def broker(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, int]]:
    """Answers one connection's requests as it is told."""
    with _listening(tls) as listening:
        thread = threading.Thread(target=_serve, args=(listening, answer))
        thread.start()
        yield listening.getsockname()
        thread.join()


def _listening(tls: ssl.SSLContext | None) -> socket.socket:
    listening = socket.create_server(("127.0.0.1", 0))
    return listening if tls is None else tls.wrap_socket(listening, server_side=True)


def _serve(listening: socket.socket, answer: Answer) -> None:
    # A client that goes in the middle of what we say has no need of the rest.
    with (
        suppress(ConnectionError, ssl.SSLError),
        _accepted(listening) as connection,
        connection.makefile("rb") as requests,
    ):
        while head := requests.read(4):
            frame = requests.read(int.from_bytes(head))
            key, _, correlation_id = struct.unpack_from(">hhi", frame)
            data = answer(key, correlation_id)
            if data is None:
                return
            connection.sendall(data)


def _accepted(listening: socket.socket) -> socket.socket:
    return listening.accept()[0]


def framed(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def versions(correlation_id: int, *offered: tuple[int, int, int], version: int = 3, error: int = 0) -> bytes:
    answer = ApiVersionsResponse(error_code=error, api_keys=[ApiVersion(*row) for row in offered])
    return framed(correlation_id, b"".join(encoder(ApiVersionsResponse, version)(answer)))


def metadata(correlation_id: int) -> bytes:
    return framed(correlation_id, b"".join(encoder(MetadataResponse, 8)(MetadataResponse(cluster_id="c"))))


def settings(timeout_ms: int = 60_000) -> ClientSettings:
    return ClientSettings((("unused", 1),), request_timeout_ms=timeout_ms)


def speaking(then: Answer) -> Answer:
    return lambda key, number: versions(number, (3, 4, 8), (18, 0, 3)) if key == 18 else then(key, number)


def test_answers_come_in_the_order_of_the_requests() -> None:
    with broker(speaking(lambda _key, number: metadata(number))) as address:
        connection = Connection.open(address, settings())
        connection.send("Metadata", {"topics": []})
        connection.send("Metadata", {"topics": []})

        assert connection.outstanding == 2
        assert [connection.receive().cluster_id for _ in range(2)] == ["c", "c"]
        connection.close()


def test_the_highest_version_that_both_know_is_taken() -> None:
    with broker(speaking(lambda _key, _number: None)) as address:
        connection = Connection.open(address, settings())

        assert (connection.version("Metadata"), connection.version("Metadata", most=6)) == (8, 6)
        with pytest.raises(UnsupportedApiError, match="offers Metadata 4-8; 9-13 is needed"):
            connection.version("Metadata", least=9)
        with pytest.raises(UnsupportedApiError, match="offers Fetch not at all"):
            connection.version("Fetch")
        connection.close()


def test_a_broker_that_is_too_old_for_the_question_is_asked_in_the_oldest() -> None:
    def old(key: int, number: int) -> bytes | None:
        code = 35 if number == 0 else 0
        return versions(number, (3, 0, 5), version=0, error=code) if key == 18 else None

    with broker(old) as address:
        connection = Connection.open(address, settings())

        assert connection.version("Metadata") == 5
        connection.close()


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (lambda _key, _number: None, ConnectionLostError, "it closed the connection"),
        (lambda _key, _number: b"", RequestTimedOutError, r"no answer in 200 ms \(kafka\.request\.timeout\.ms\)"),
        (lambda _key, number: metadata(number + 7), ConnectionLostError, "came in the place of"),
        (lambda _key, _number: b"\xff\xff\xff\xff", ConnectionLostError, "an answer of -1 bytes"),
        (lambda _key, number: framed(number, b"\x00"), ConnectionLostError, "not a MetadataResponse"),
        (lambda _key, _number: b"\x00\x00\x01\x00half", RequestTimedOutError, "no answer"),
    ],
)
def test_what_fails_closes_the_connection_and_names_broker_and_api(
    answer: Answer, error: type[BrokerError], said: str
) -> None:
    with broker(speaking(answer)) as address:
        connection = Connection.open(address, settings(), node_id=4)
        if error is RequestTimedOutError:
            connection._settings = settings(200)

        with pytest.raises(error, match=said) as caught:
            connection.ask("Metadata", {"topics": []})

        assert str(caught.value).startswith(f"broker 4 (127.0.0.1:{address[1]}): Metadata: ")
        assert not connection.is_open
        with pytest.raises(ConnectionLostError, match="it is closed"):
            connection.send("Metadata", {})


def test_something_that_is_no_broker_is_unreachable() -> None:
    with (
        broker(lambda _key, _number: b"HTTP/1.1 400 Bad Request\r\n") as address,
        pytest.raises(BrokerUnreachableError, match="not a Kafka broker"),
    ):
        Connection.open(address, settings())


def test_a_port_where_nobody_listens_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
    with pytest.raises(BrokerUnreachableError, match="Connection refused"):
        Connection.open(address, settings())


def server_context(directory: Path) -> tuple[ssl.SSLContext, str]:
    """With a certificate of its own, and where that lies."""
    both = directory / "both.pem"
    both.write_text(CERTIFICATE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context, str(both)


def test_tls_is_spoken_with_a_broker_whose_certificate_is_trusted(tmp_path: Path) -> None:
    context, trusted = server_context(tmp_path)
    tls = replace(settings(), security_protocol="SSL", ssl_ca_location=trusted)
    with broker(speaking(lambda _key, number: metadata(number)), context) as address:
        connection = Connection.open(address, tls)

        assert connection.ask("Metadata", {"topics": []}).cluster_id == "c"
        connection.close()


@pytest.mark.parametrize("speaks_tls", [True, False])
def test_a_broker_that_is_not_trusted_or_speaks_no_tls_is_unreachable(tmp_path: Path, speaks_tls: bool) -> None:
    context, _ = server_context(tmp_path)
    tls = replace(settings(500), security_protocol="SSL")
    with (
        broker(lambda _key, _number: None, context if speaks_tls else None) as address,
        pytest.raises(
            BrokerUnreachableError,
            match=r"TLS: CERTIFICATE_VERIFY_FAILED|no answer in 500 ms: does this port speak TLS\?",
        ),
    ):
        Connection.open(address, tls)


CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBnDCCAUGgAwIBAgIUYp/VSww5NeakvnfDzwPBwowjbqUwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMjIyMDEzNVoYDzIxMjYxMDI5
MjIwMTM1WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAATdY3B5HlkG+2FudHYrHj9mHZvpyKEBojUI4AouzE7tpvfzCKrDaS8q
2HscX/92GRXmmEiITz3EEMvcacQexx2to28wbTAdBgNVHQ4EFgQU1CEd4so+IwYr
ZqIK2BCmjrfcPnUwHwYDVR0jBBgwFoAU1CEd4so+IwYrZqIK2BCmjrfcPnUwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSQAwRgIhAPZBvLnAZgkaaihMT9V4M3P7CkhPMPc7DNN+b6hPNVuVAiEA
9irXpnWnS4Ic6jqvjtRkLHalyyYNg0GDn+IdopnnKYw=
-----END CERTIFICATE-----
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgGNU6mhqItuZPMoUQ
kMzjNJR8Ydvm2sPEBK5+Q/92wU2hRANCAATdY3B5HlkG+2FudHYrHj9mHZvpyKEB
ojUI4AouzE7tpvfzCKrDaS8q2HscX/92GRXmmEiITz3EEMvcacQexx2t
-----END PRIVATE KEY-----
"""
"""Of localhost and 127.0.0.1, signed by itself, for a hundred years. Its key is no secret."""
