"""Who sends a request: the client id in its header. It is the same in every request of a connection, so one unpack reads a whole header and
compares it, and nothing is decoded."""

from functools import lru_cache
from struct import Struct
from sys import intern
from typing import NamedTuple

from ottla.broker.wire.headers import FIXED, read_request_header


class Sender(NamedTuple):
    """``header`` gives (API key, version, correlation id, length of the client id, client id) of a request of the same sender, as far as
    the tags (KIP-482); ``length`` -1: it says no name."""

    header: Struct
    header_bytes: int
    length: int
    raw: bytes
    client_id: str | None


def sender_of(frame: memoryview) -> Sender:
    """Raises WireError when the bytes are no request's header."""
    *_, client_id, _ = read_request_header(frame, 0)
    *_, length = FIXED.unpack_from(frame)
    return _sender(length, bytes(frame[FIXED.size : FIXED.size + max(length, 0)]), client_id)


@lru_cache(maxsize=128)  # bounded: client ids come from the network
def _sender(length: int, raw: bytes, client_id: str | None) -> Sender:
    """The same object for all connections of that name, for what each of a thousand has for itself is not in the processor's cache when its
    turn comes."""
    header = Struct(f">hhih{len(raw)}s")
    return Sender(header, header.size, length, raw, client_id if client_id is None else intern(client_id))


NOBODY = _sender(-1, b"", None)
"""Before the first request."""
