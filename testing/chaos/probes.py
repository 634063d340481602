"""What a stranger meets on a link: how long the first answer takes, and whether there is one."""

import socket
import struct
import time
from typing import NamedTuple

from ottla.testing.chaos.links import QUORUM
from ottla.testing.chaos.proxies import HOST

_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
"""A client's greeting: the server's is its answer. What gRPC speaks to controllers."""

_API_VERSIONS = struct.pack(">ihhih5s", 15, 18, 0, 1, 5, b"probe")
"""Version 0: any broker's answer is some hundreds of bytes."""

REFUSED, SILENT, BROKEN, ANSWERED = "refused", "silent", "broken", "answered"


class Answer(NamedTuple):
    """``seconds``: until the last byte of it, or until it was clear that there is none."""

    what: str
    seconds: float
    size: int = 0


def ask(port: int, kind: str, timeout_s: float) -> Answer:
    """Connects to a port of this machine, as a node of a link of that kind would."""
    began = time.monotonic()
    size = 0
    try:
        with socket.create_connection((HOST, port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(_HTTP2 if kind == QUORUM else _API_VERSIONS)
            size = _read(connection, kind)
            what = ANSWERED if size else BROKEN
    except ConnectionRefusedError:
        what = REFUSED
    except TimeoutError:
        what = SILENT
    except OSError:
        what = BROKEN
    return Answer(what, time.monotonic() - began, size)


def _read(connection: socket.socket, kind: str) -> int:
    """A whole answer of Kafka's; of HTTP/2 the first nine bytes, which any frame has."""
    head = _exactly(connection, 9 if kind == QUORUM else 4)
    if kind == QUORUM or not head:
        return len(head)
    return 4 + len(_exactly(connection, int.from_bytes(head, "big")))


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise ConnectionAbortedError
        found += more
    return found


def seconds_to_close(port: int, timeout_s: float) -> float:
    """How long the end of a connection takes to come back, once this side has said that it sends no more."""
    with socket.create_connection((HOST, port), timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.shutdown(socket.SHUT_WR)
        began = time.monotonic()
        try:
            while connection.recv(4096):
                pass
        except OSError:
            pass
        return time.monotonic() - began
