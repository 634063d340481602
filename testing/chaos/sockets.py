"""What passes through ports of this machine, as the kernel counts it (sock_diag(7)): Toxiproxy itself counts a connection's bytes only
when it has ended.

The counts are of bytes between a proxy and who connected to it, so bytes that the proxy then dropped are among them.
"""

import socket
import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple

_SOCK_DIAG = 4
_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_ESTABLISHED = 1 << 1
_INFO = 2
_DONE, _ERROR = 3, 2
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48x")
_MESSAGE_BYTES = 72
_PORTS = struct.Struct(">HH")
_COUNTS = struct.Struct("=QQ")
_COUNTS_AT = 120
"""tcpi_bytes_acked and tcpi_bytes_received in struct tcp_info."""


class Connection(NamedTuple):
    """``port``: of the end on this machine that was asked for; ``identity`` tells it from every other, earlier and later."""

    port: int
    identity: bytes
    received: int
    sent: int


def connections(ports: Collection[int]) -> list[Connection]:
    """The established ones that somebody accepted on one of these ports."""
    wanted = frozenset(ports)
    return [each for each in _dump() if each.port in wanted]


def _dump() -> Iterator[Connection]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as asked:
        asked.settimeout(5)
        body = _REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 1 << (_INFO - 1), _ESTABLISHED)
        asked.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST_DUMP, 1, 0) + body)
        while True:
            data = asked.recv(1 << 18)
            at = 0
            while at + _HEADER.size <= len(data):
                length, kind, _, _, _ = _HEADER.unpack_from(data, at)
                if kind in (_DONE, _ERROR):
                    return
                yield _connection(data[at + _HEADER.size : at + length])
                at += (length + 3) & ~3


def _connection(message: bytes) -> Connection:
    port, _ = _PORTS.unpack_from(message, 4)
    sent = received = 0
    at = _MESSAGE_BYTES
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if kind == _INFO and length >= 4 + _COUNTS_AT + _COUNTS.size:
            sent, received = _COUNTS.unpack_from(message, at + 4 + _COUNTS_AT)
        at += max((length + 3) & ~3, 4)
    return Connection(port, message[4:52], received, sent)


class Traffic:
    """What passed through some ports since it was made, as far as it looked often enough: call `look` now and then."""

    def __init__(self, ports: Collection[int]) -> None:
        self._ports = tuple(ports)
        self._begun = {each.identity: each for each in connections(self._ports)}
        self._last = dict(self._begun)
        self._here = set(self._begun)

    def look(self) -> None:
        now = connections(self._ports)
        self._here = {each.identity for each in now}
        self._last.update((each.identity, each) for each in now)

    @property
    def received(self) -> int:
        """Bytes that those who connected have sent."""
        return sum(each.received - self._before(each).received for each in self._last.values())

    @property
    def sent(self) -> int:
        """Bytes that came back to them."""
        return sum(each.sent - self._before(each).sent for each in self._last.values())

    @property
    def opened(self) -> int:
        """Connections that were there at the start, or came since."""
        return len(self._last)

    @property
    def ended(self) -> int:
        """Of these, connections that are gone."""
        return len(self._last.keys() - self._here)

    def _before(self, connection: Connection) -> Connection:
        return self._begun.get(connection.identity, Connection(0, b"", 0, 0))
