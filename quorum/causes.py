"""The cause of a batch, which stands beside its records: who or what made them, in words, and by which request.

A request: ``create_topics by client ann through broker 2 #0a1b…``; the number is its id, by which a repetition is known.
Anything else the controller does of itself: ``broker 3 is fenced: its connection ended``.
"""

from ottla.proto import controller_pb2 as rpc

REQUEST_ID_BYTES_MAX = 64
"""Ids go into the log with what they cause, and must leave room for it."""

_LENGTH_MAX = 200
_MARK = " #"


def client_origin(client_id: str | None, broker_id: int) -> str:
    """A client's request that a broker passes on."""
    return f"client {client_id} through broker {broker_id}" if client_id else f"a client of broker {broker_id}"


def broker_origin(broker_id: int) -> str:
    """A broker's own request."""
    return f"broker {broker_id}"


def cause_of(name: str, request: rpc.ControllerRequest) -> str:
    """The cause of a request's records: its name, who asked, and its id."""
    cause = f"{name} by {request.origin or 'somebody'}{_detail(request)}"[:_LENGTH_MAX]
    return f"{cause}{_MARK}{request.request_id.hex()}" if request.request_id else cause


def _detail(request: rpc.ControllerRequest) -> str:
    """A heartbeat can ask for more than to live."""
    beat = request.broker_heartbeat
    if request.WhichOneof("body") != "broker_heartbeat":
        return ""
    if beat.want_shut_down:
        return ", which shuts down"
    if beat.offline_directories:
        return ", which lost a directory"
    return ", which wants to be fenced" if beat.want_fence else ""


def in_words(cause: str) -> str:
    """A cause as people read it: without the id."""
    return cause if request_id_of(cause) is None else cause.rpartition(_MARK)[0]


def request_id_of(cause: str) -> bytes | None:
    _, mark, text = cause.rpartition(_MARK)
    try:
        return bytes.fromhex(text) if mark else None
    except ValueError:
        return None  # a client's name that looks like a mark
