"""The metrics listener: HTTP as far as a scrape needs it, within bounds that a hostile client cannot stretch.

One request a connection, which is then closed. No library's server: those take a thread for each connection, for as long as the client likes.
"""

import asyncio
import logging
from typing import cast

from ottla.broker.metrics.render import JSON_TYPE, TEXT_TYPE, render_json, render_text
from ottla.broker.metrics.scrape import Render, Scraper
from ottla.runtime.settings.endpoints import Endpoint

CONNECTIONS_MAX = 32
HEAD_BYTES_MAX = 8 << 10
CONNECTION_S_MAX = 10.0
"""From the first byte to the last: who reads slower than that is cut off."""

PAGES: dict[str, tuple[Render, str]] = {"/metrics": (render_text, TEXT_TYPE), "/metrics.json": (render_json, JSON_TYPE)}
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
}

logger = logging.getLogger(__name__)


class MetricsServer:
    """Answers scrapes from `bind` on until `close`."""

    def __init__(self, scraper: Scraper) -> None:
        self.scraper = scraper
        self.visits: dict[_Visit, None] = {}
        self._server: asyncio.Server | None = None

    async def bind(self, endpoint: Endpoint) -> int:
        """Listens there; returns the port. Raises OSError when the address is taken or not ours."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Visit(self), endpoint.host or None, endpoint.port)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for visit in list(self.visits):
            visit.abort()
        await self.scraper.close()


class _Visit(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: MetricsServer) -> None:
        self._server = server
        self._head = b""
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = asyncio.get_running_loop().call_later(CONNECTION_S_MAX, self._transport.abort)
        self._server.visits[self] = None
        if len(self._server.visits) > CONNECTIONS_MAX:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._server.visits.pop(self, None)
        if self._answering is not None:
            self._answering.cancel()

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._answering is not None or self._transport.is_closing():
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end >= 0 and end <= HEAD_BYTES_MAX:
            self._transport.pause_reading()
            self._answering = asyncio.get_running_loop().create_task(self._answer(), name="metrics answer")
        elif len(self._head) > HEAD_BYTES_MAX:
            self._respond(431, b"the header is too long\n")

    async def _answer(self) -> None:
        words = self._head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._respond(400, b"this listener speaks HTTP/1.1\n")
            return
        method, target, _ = words
        page = PAGES.get(target.partition("?")[0])
        if page is None:
            self._respond(404, b"there is /metrics, and /metrics.json\n")
        elif method not in ("GET", "HEAD"):
            self._respond(405, b"GET it\n")
        else:
            render, kind = page
            try:
                body = await self._server.scraper.body(render)
            except Exception:
                logger.exception("The metrics cannot be given out, which is our mistake")
                self._respond(500, b"the node's log says why\n")
                return
            self._respond(200, body, kind, head_only=method == "HEAD")

    def _respond(
        self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8", *, head_only: bool = False
    ) -> None:
        head = (
            f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode("latin-1") + (b"" if head_only else body))
        self._transport.close()
