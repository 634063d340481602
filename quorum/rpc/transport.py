"""How nodes call each other: the interface that the quorum and the controller are written against.

A service exchanges protobuf messages that carry ``uint64 correlation_id = 1``; the transport alone sets and reads it.
Production uses `GrpcTransport`, the simulation `StreamTransport`; one suite of tests holds both to what is said here.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.message import Message

MESSAGE_BYTES_MAX = 32 * 1024 * 1024
"""The largest request or response. A peer that sends more loses its connection."""

OUTSTANDING_MAX = 1024
"""Calls of one channel without an answer, and requests of one connection without a reply. A channel that has as many
fails further calls; a server stops reading the connection."""

# The generated classes share no type that names their fields, so requests and responses are Any here; each service's
# own code knows what it sends.
Request = Any
Response = Any
OnDone = Callable[[Response | None], None]
Reply = Callable[[Response], None]
Handler = Callable[[Request, Reply], None]
"""Takes a request on the loop; calls ``reply`` at most once, now or later. An exception closes the connection, BadRequest with a
line that gives its reason."""


Stranger = Callable[[asyncio.Transport, bytes], None]
"""Takes over a connection that speaks another protocol: its transport, and all that came of it by now. It is nobody else's any more."""


class BadRequest(Exception):
    """What came is no request that anybody of this cluster sends: the peer's mistake."""


class Conversation(Protocol):
    """A service's side of one connection, for those who must know when it ends."""

    def handle(self, request: Request, reply: Reply) -> None:
        """Handles a request, as a `Handler` does."""
        ...

    def ended(self) -> None:
        """The connection is gone. Told once; no request comes afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class PerConnection:
    """In a `Handler`'s place: ``open`` makes a `Conversation` for each connection."""

    open: Callable[[], Conversation]


@dataclass(frozen=True, slots=True)
class Service:
    """A kind of conversation. ``name`` is the full protobuf name of the service; its one method is ``Exchange``."""

    name: str
    request_type: type[Message]
    response_type: type[Message]


class RpcChannel(Protocol):
    """Calls to one service of one peer, over one connection that is made at the first call and again after a failure."""

    def call(self, request: Request, on_done: OnDone, timeout_ms: int) -> None:
        """Sends ``request``; ``on_done`` is called once, later, on the loop: with the response, or with None when the
        connection broke or was refused, the time ran out, or too many calls are under way. The peer may have acted on a
        request that got None. The request must not be changed or sent again before ``on_done``."""
        ...

    def close(self) -> None:
        """Ends the connection; what is under way gets None. ``on_broken`` is not called."""
        ...


class RpcServer(Protocol):
    """A port that answers."""

    @property
    def port(self) -> int: ...

    async def close(self) -> None:
        """Stops listening and breaks every connection; late replies are dropped."""
        ...


class RpcTransport(Protocol):
    """Makes servers and channels."""

    async def prepare(self, cluster_id: str) -> None:
        """Takes what it needs of the process, before anybody from outside can take it; to be called before any listener opens.
        From then on its channels show that they belong to ``cluster_id``, and its servers look for that. OSError."""
        ...

    async def serve(
        self,
        host: str,
        port: int,
        handlers: Mapping[Service, Handler | PerConnection],
        stranger: Stranger | None = None,
    ) -> RpcServer:
        """Answers the services on ``port`` (0: any free one); connections that begin otherwise are ``stranger``'s, or closed.
        OSError when the address cannot be had."""
        ...

    def channel(self, host: str, port: int, service: Service, on_broken: Callable[[], None]) -> RpcChannel:
        """A channel to a peer. ``on_broken`` is told at once, after the failed calls were, each time that a connection
        is refused or breaks. It is not told of silence: that is for the caller's timeouts."""
        ...

    async def close(self) -> None:
        """Waits until every closed channel has let go of its socket. Close channels and servers first."""
        ...
