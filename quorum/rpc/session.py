"""The half of a server's connection that every transport shares: requests in, replies out, trouble closes it."""

import logging
from collections.abc import Callable

from google.protobuf.message import DecodeError

from ottla.quorum.rpc.transport import (
    OUTSTANDING_MAX,
    BadRequest,
    Conversation,
    Handler,
    PerConnection,
    Response,
    Service,
)

_logger = logging.getLogger(__name__)


class Session:
    """The requests of one connection. ``complain`` says why it is closed, and of which kind that is; ``send`` writes a
    response; ``on_room`` tells that reading may go on."""

    def __init__(
        self,
        service: Service,
        handler: Handler | PerConnection,
        peer: str,
        complain: Callable[[str, str], None],
        send: Callable[[bytes], None],
        on_room: Callable[[], None],
    ) -> None:
        self._service = service
        self._conversation: Conversation | None = None
        if isinstance(handler, PerConnection):
            self._conversation = handler.open()
            self._handler: Handler = self._conversation.handle
        else:
            self._handler = handler
        self._peer = peer
        self._complain = complain
        self._send = send
        self._on_room = on_room
        self._outstanding = 0
        self._closed = False

    @property
    def is_full(self) -> bool:
        """Whether as many requests wait for their reply as may: do not read on before ``on_room``."""
        return self._outstanding >= OUTSTANDING_MAX

    def receive(self, data: bytes) -> bool:
        """Handles one request; False: close the connection (it has been logged why)."""
        try:
            request = self._service.request_type.FromString(data)
        except DecodeError:
            self._complain(f"{self._service.name}: not a request", "not a request")
            return False
        self._outstanding += 1
        try:
            self._handler(request, self._replier(request.correlation_id))  # type: ignore[attr-defined]  # each service's messages have one
        except BadRequest as error:
            self._complain(f"{self._service.name}: {error}", "bad request")
            return False
        except Exception:
            _logger.exception("%s: closing the connection: %s failed", self._peer, self._service.name)
            return False
        return True

    def _replier(self, correlation_id: int) -> Callable[[Response], None]:
        replied = False

        def reply(response: Response) -> None:
            nonlocal replied
            if replied or self._closed:
                return
            replied = True
            response.correlation_id = correlation_id
            self._send(response.SerializeToString())
            was_full = self.is_full
            self._outstanding -= 1
            if was_full:
                self._on_room()

        return reply

    def close(self) -> None:
        """The connection is gone: replies that come now are dropped."""
        if not self._closed:
            self._closed = True
            if self._conversation is not None:
                self._conversation.ended()
