"""Servers and channels of either transport, on every loop."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.proto import controller_pb2
from ottla.quorum.rpc.transport import (
    Handler,
    Request,
    RpcChannel,
    RpcServer,
    RpcTransport,
    Service,
)

SERVICE = Service("ottla.controller.Controller", controller_pb2.ControllerRequest, controller_pb2.ControllerResponse)


OTHER = Service("ottla.other.Other", controller_pb2.ControllerRequest, controller_pb2.ControllerResponse)


Scenario = Callable[["Bench"], Awaitable[None]]


class Bench:
    """A transport, what was made with it, and how often its channels broke."""

    def __init__(self, transport: RpcTransport) -> None:
        self.transport = transport
        self.channels: list[RpcChannel] = []
        self.servers: list[RpcServer] = []
        self.broken = 0

    async def serve(self, handler: Handler, port: int = 0) -> RpcServer:
        server = await self.transport.serve("127.0.0.1", port, {SERVICE: handler})
        self.servers.append(server)
        return server

    def channel(self, port: int, service: Service = SERVICE) -> RpcChannel:
        def on_broken() -> None:
            self.broken += 1

        channel = self.transport.channel("127.0.0.1", port, service, on_broken)
        self.channels.append(channel)
        return channel

    async def close(self) -> None:
        for channel in self.channels:
            channel.close()
        for server in self.servers:
            await server.close()
        await self.transport.close()


HANGS_S = 120
"""A scenario that takes as long hangs; on a busy machine one with a thousand calls has taken 20 s."""


def heartbeat(broker_id: int) -> Request:
    body = controller_pb2.BrokerHeartbeatRequest(broker_id=broker_id)
    return controller_pb2.ControllerRequest(broker_heartbeat=body)


def echo(request: Any, reply: Callable[[Any], None]) -> None:
    reply(controller_pb2.ControllerResponse(error_code=request.broker_heartbeat.broker_id))


def ask(channel: RpcChannel, number: int, timeout_ms: int = HANGS_S * 500) -> "asyncio.Future[int | None]":
    answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def on_done(response: Any) -> None:
        answer.set_result(None if response is None else response.error_code)

    channel.call(heartbeat(number), on_done, timeout_ms)
    return answer


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is a socket's doing
        await asyncio.sleep(0.001)


async def first_call_answered(channel: RpcChannel, replies: list[tuple[Any, Callable[[Any], None]]]) -> None:
    """The link is open then. On a busy machine an attempt may take longer than a channel waits; then all its calls fail."""
    answer = ask(channel, 1)
    while not replies:
        if answer.done():
            answer = ask(channel, 1)
        await asyncio.sleep(0.001)
    echo(*replies.pop())
    await answer


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
