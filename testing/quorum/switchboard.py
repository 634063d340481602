"""`RpcTransport` without a network: calls reach the other side in the next turn of the loop, encoded and decoded."""

import asyncio
from collections.abc import Callable, Mapping

from ottla.quorum.rpc.transport import Handler, OnDone, PerConnection, Request, Response, Service, Stranger


class Switchboard:
    """Knows who answers where. One for a whole test."""

    def __init__(self) -> None:
        self.servers: dict[tuple[str, int], SwitchboardServer] = {}
        self.channels: list[SwitchboardChannel] = []

    async def prepare(self, cluster_id: str) -> None: ...

    async def serve(
        self,
        host: str,
        port: int,
        handlers: Mapping[Service, Handler | PerConnection],
        stranger: Stranger | None = None,
    ) -> "SwitchboardServer":
        server = SwitchboardServer(self, (host, port), handlers)
        self.servers[host, port] = server
        return server

    def channel(self, host: str, port: int, service: Service, on_broken: Callable[[], None]) -> "SwitchboardChannel":
        channel = SwitchboardChannel(self, (host, port), service, on_broken)
        self.channels.append(channel)
        return channel

    async def close(self) -> None: ...


class SwitchboardServer:
    def __init__(
        self, switchboard: Switchboard, address: tuple[str, int], handlers: Mapping[Service, Handler | PerConnection]
    ) -> None:
        self._switchboard = switchboard
        self._address = address
        self.handlers = handlers

    @property
    def port(self) -> int:
        return self._address[1]

    async def close(self) -> None:
        """Breaks every channel to here."""
        self._switchboard.servers.pop(self._address, None)
        for channel in self._switchboard.channels:
            if channel.address == self._address:
                channel.break_off()


class SwitchboardChannel:
    def __init__(
        self, switchboard: Switchboard, address: tuple[str, int], service: Service, on_broken: Callable[[], None]
    ) -> None:
        self._switchboard = switchboard
        self.address = address
        self._service = service
        self._on_broken = on_broken
        self._calls: dict[int, OnDone] = {}
        self._last_id = 0
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def call(self, request: Request, on_done: OnDone, timeout_ms: int) -> None:
        self._last_id += 1
        self._calls[self._last_id] = on_done
        data = request.SerializeToString()
        self._loop.call_soon(self._arrive, self._last_id, data)
        self._loop.call_later(timeout_ms / 1000, self._finish, self._last_id, None)

    def _arrive(self, call_id: int, data: bytes) -> None:
        server = self._switchboard.servers.get(self.address)
        if call_id not in self._calls:
            return
        if server is None:
            self._loop.call_soon(self.break_off)
            return
        handler = server.handlers[self._service]
        assert not isinstance(handler, PerConnection), "the quorum's requests need no connection"
        handler(self._service.request_type.FromString(data), lambda response: self._reply(call_id, response))

    def _reply(self, call_id: int, response: Response) -> None:
        decoded = self._service.response_type.FromString(response.SerializeToString())
        self._loop.call_soon(self._finish, call_id, decoded)

    def _finish(self, call_id: int, response: Response | None) -> None:
        on_done = self._calls.pop(call_id, None)
        if on_done is not None:
            on_done(response)

    def break_off(self) -> None:
        for call_id in list(self._calls):
            self._finish(call_id, None)
        if not self._closed:
            self._on_broken()

    def close(self) -> None:
        self._closed = True
        self._calls.clear()
