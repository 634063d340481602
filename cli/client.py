"""A small blocking client of Kafka's protocol, for commands that ask one question and end."""

import socket
from types import TracebackType
from typing import TypeVar

import msgspec

from ottla.broker.wire.apis import API_VERSIONS, BY_NAME
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.headers import encode_request_header, read_response_header
from ottla.broker.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.broker.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.cli.failures import CommandError
from ottla.runtime.settings.endpoints import Endpoint, parse_endpoint

CLIENT_ID = "ottla-cli"
TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 3.0
FRAME_BYTES_MAX = 256 << 20
FOREIGN = "what answers there does not speak Kafka's protocol"

Response = TypeVar("Response", bound=msgspec.Struct)


class ConnectionLost(CommandError):
    """The request was sent, and no answer came: it may have been carried out."""


class NobodyAnswers(CommandError):
    """There is no connection to any of the addresses."""


class Client:
    """One connection to one broker; versions are agreed on at the start."""

    def __init__(
        self,
        bootstrap: str,
        timeout_s: float = TIMEOUT_S,
        option: str = "--bootstrap-server",
        greeting_s: float | None = None,
    ) -> None:
        """Connects to the first node of ``bootstrap`` that answers; ``option`` named them. Raises CommandError when none does.
        ``greeting_s``: for the first answer, where that is to come sooner than others."""
        self._correlation_id = 0
        told = self._greet(bootstrap, timeout_s if greeting_s is None else greeting_s, option)
        self._timeout_s = timeout_s
        self._socket.settimeout(timeout_s)
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in told.api_keys}
        self.finalized = {each.name: each.max_version_level for each in told.finalized_features}

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def offers(self, api: str) -> bool:
        """Whether the broker has the API at all."""
        return BY_NAME[api].key in self._versions

    def call(self, request: msgspec.Struct, response: type[Response]) -> Response:
        """Sends the request in the newest version both sides have, and waits for its answer.

        Raises CommandError when the broker does not offer the API, or the connection ends.
        """
        api = BY_NAME[type(request).__name__.removesuffix("Request")]
        offered = self._versions.get(api.key)
        version = min(api.max, offered[1]) if offered else -1
        if offered is None or version < max(api.min, offered[0]):
            raise CommandError(f"the broker does not offer {api.name}: it is older or newer than this command")
        return self._exchange(api.key, version, request, response)

    def _greet(self, bootstrap: str, patience_s: float, option: str) -> ApiVersionsResponse:
        """Whoever dies, or stands behind a proxy, may take a connection and say nothing: only the last is waited for that long."""
        addresses = [parse_endpoint(text.strip(), option) for text in bootstrap.split(",")]
        failures = []
        for left, address in zip(reversed(range(len(addresses))), addresses, strict=True):
            self._timeout_s = min(patience_s, CONNECT_TIMEOUT_S) if left else patience_s
            try:
                self._socket = _connect(address, self._timeout_s)
            except OSError as error:
                failures.append(f"{address}: {error.strerror or error}")
                continue
            try:
                return self._api_versions()
            except BaseException as error:
                self.close()
                if len(addresses) == 1 or not isinstance(error, CommandError):
                    raise
                failures.append(f"{address}: {error}")
        who = "controller" if option == "--bootstrap-controller" else "broker"
        raise NobodyAnswers(f"no {who} answers ({'; '.join(failures)}): check {option}, and that the cluster is up")

    def _api_versions(self) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="0")
        return self._exchange(API_VERSIONS, 3, request, ApiVersionsResponse)

    def _exchange(self, key: int, version: int, request: msgspec.Struct, response: type[Response]) -> Response:
        self._correlation_id += 1
        header = encode_request_header(key, version, self._correlation_id, CLIENT_ID)
        try:
            body = b"".join([header, *encoder(type(request), version)(request)])
        except (WireError, UnicodeEncodeError) as error:
            detail = "a name is not UTF-8" if isinstance(error, UnicodeEncodeError) else error.message
            raise CommandError(f"this cannot be asked of a broker: {detail}") from error
        try:
            self._socket.sendall(len(body).to_bytes(4, "big") + body)
            frame = memoryview(self._receive(int.from_bytes(self._receive(4), "big")))
        except TimeoutError:
            raise ConnectionLost(f"the broker did not answer within {self._timeout_s:.0f} s") from None
        except OSError as error:
            raise ConnectionLost(f"the connection to the broker broke: {error}") from error
        try:
            _, position = read_response_header(frame, 0, key, version)
            return decoder(response, version)(frame, position)[0]
        except WireError as error:
            raise CommandError(FOREIGN) from error

    def _receive(self, size: int) -> bytes:
        if size > FRAME_BYTES_MAX:
            raise CommandError(FOREIGN)
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionResetError("closed by the broker")
            parts += part
        return bytes(parts)


def _connect(address: Endpoint, timeout_s: float) -> socket.socket:
    """Raises OSError."""
    try:
        connection = socket.create_connection(address, CONNECT_TIMEOUT_S)
    except UnicodeError as error:
        raise OSError("this is no name of a host") from error
    connection.settimeout(timeout_s)
    return connection
