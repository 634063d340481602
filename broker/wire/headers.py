"""Request and response headers, both directions, without objects.

A frame is an int32 size and that many bytes: header, then body. The size is the connection's business, not ours.
"""

from struct import Struct
from struct import error as StructError

from ottla.broker.wire.apis import request_header_is_flexible, response_header_is_flexible
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.primitives import STRING_MAX, skip_tags, truncated

FIXED = Struct(">hhih")  # API key, version, correlation id, length of the client id
CORRELATION_ID = Struct(">i")


def read_request_header(view: memoryview, pos: int) -> tuple[int, int, int, str | None, int]:
    """``(api_key, version, correlation_id, client_id, body_pos)`` of the request that starts at ``pos``.

    An API or a version that we do not know is not refused here: its header is read as far as the key tells.
    Raises WireError when the bytes are no header.
    """
    try:
        key, version, correlation_id, length = FIXED.unpack_from(view, pos)
        pos += 10
        client_id = None
        if length >= 0:
            # The client id is never compact, also in flexible headers (KIP-482).
            client_id = str(view[pos : (pos := pos + length)], "utf-8")
        if request_header_is_flexible(key, version):
            first = view[pos]
            pos = skip_tags(view, pos + 1, first) if first else pos + 1
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise WireError(f"bytes are not a request header: {error}") from error
    if pos > len(view):
        raise truncated()
    return key, version, correlation_id, client_id, pos


def encode_request_header(key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header that a client sends. Raises WireError when the client id is too long."""
    text = b"" if client_id is None else client_id.encode()
    if len(text) > STRING_MAX:
        raise WireError(f"a client id is longer than {STRING_MAX} bytes")
    fixed = FIXED.pack(key, version, correlation_id, -1 if client_id is None else len(text))
    return fixed + text + b"\0" if request_header_is_flexible(key, version) else fixed + text


def read_response_header(view: memoryview, pos: int, key: int, version: int) -> tuple[int, int]:
    """``(correlation_id, body_pos)`` of the response to a request of this API and version. Raises WireError."""
    try:
        correlation_id: int = CORRELATION_ID.unpack_from(view, pos)[0]
        pos += 4
        if response_header_is_flexible(key, version):
            first = view[pos]
            pos = skip_tags(view, pos + 1, first) if first else pos + 1
    except (IndexError, StructError) as error:
        raise WireError(f"bytes are not a response header: {error}") from error
    return correlation_id, pos
