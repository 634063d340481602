"""`RpcTransport` over gRPC: one long-lived stream for each peer and service.

A unary call costs 0.35 ms and a message on a standing stream 0.15 ms, so the method ``Exchange`` is a stream in both
directions and correlation ids do what calls would. gRPC's own way back to a lost peer waits a second between attempts and
remembers failed addresses across channels; so each link is a channel of its own, with its own pool of connections, that is
given up at its first failure. When to try again is `Channel`'s business.
"""

import asyncio
import contextlib
import os
import resource
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ottla.quorum.rpc.admission import DoorLimits
from ottla.quorum.rpc.channel import Channel, LinkEvents
from ottla.quorum.rpc.gate import Gate, Visitor
from ottla.quorum.rpc.session import Session
from ottla.quorum.rpc.transport import (
    MESSAGE_BYTES_MAX,
    Handler,
    PerConnection,
    RpcChannel,
    RpcServer,
    Service,
    Stranger,
)
from ottla.runtime.settings.endpoints import Endpoint, reached_by

if TYPE_CHECKING:
    import grpc  # otherwise where it is used: commands that talk to no node do not pay for it

_METHOD = "Exchange"
_CLUSTER_ID = "ottla-cluster-id"
"""In a stream's metadata: to which cluster a node belongs. Not a secret: it tells the cluster's nodes from those who came by."""
_KEEPALIVE_MS = 10_000  # for a peer whose machine vanished; a peer that only died is noticed by its closed socket

_OUTBOX_BYTES_MAX = 4 << 20  # what a client may leave unread before it is not heard any more

_MESSAGE_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_MS // 2),
]
_CHANNEL_OPTIONS = [
    *_MESSAGE_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel inherits the back-off of the one before
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 2000),  # also how long one attempt to connect may take
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
]
_SERVER_OPTIONS = [
    *_MESSAGE_OPTIONS,
    ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_MS // 2),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_concurrent_streams", 1),  # of one connection: a link has no other
]


class _Outbox:
    """What waits to be written on a stream. gRPC takes one message at a time and says when it takes the next."""

    def __init__(self, on_written: Callable[[], None] = lambda: None) -> None:
        self._waiting: deque[bytes] = deque()
        self._filled = asyncio.Event()
        self._on_written = on_written
        self._size_bytes = 0

    @property
    def is_full(self) -> bool:
        """The peer does not read: it should not be read from, either."""
        return self._size_bytes > _OUTBOX_BYTES_MAX

    def put(self, data: bytes) -> None:
        self._size_bytes += len(data)
        self._waiting.append(data)
        self._filled.set()

    async def drain_into(self, write: Callable[[bytes], Coroutine[Any, Any, None]]) -> None:
        """Writes what is put, until it is cancelled."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._waiting:
                data = self._waiting.popleft()
                await write(data)
                self._size_bytes -= len(data)
                self._on_written()


class _Tasks:
    """Tasks that end on their own; held here so that they are not collected while they run."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[None], None] = {}

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = None
        task.add_done_callback(self._running.pop)
        return task

    async def wait(self) -> None:
        while self._running:
            await asyncio.wait(list(self._running))


class _GrpcLink:
    """One gRPC channel and the one stream in it."""

    def __init__(self, target: str, method: str, cluster_id: str, events: LinkEvents, tasks: _Tasks) -> None:
        self._events: LinkEvents | None = events
        self._metadata = ((_CLUSTER_ID, cluster_id),) if cluster_id else ()
        self._outbox = _Outbox()
        self._task = tasks.start(self._run(target, method))

    def send(self, data: bytes) -> None:
        self._outbox.put(data)

    def close(self) -> None:
        if self._events is not None:
            self._events = None
            self._task.cancel()

    async def _run(self, target: str, method: str) -> None:
        import grpc

        channel = grpc.aio.insecure_channel(target, options=_CHANNEL_OPTIONS)
        reason = "the stream was closed"
        writer: asyncio.Task[None] | None = None
        try:
            call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(method)(metadata=self._metadata)
            await call.wait_for_connection()
            await call.initial_metadata()  # the server knows by then whose stream it is, and takes large messages
            if self._events is not None and not call.done():
                writer = asyncio.get_running_loop().create_task(self._write(call.write))
                self._events.on_open()
            await self._read(call)
        except grpc.aio.AioRpcError as error:
            reason = f"{error.code().name}: {error.details()}"
        except asyncio.CancelledError:
            reason = "closed"
        finally:
            if writer is not None:
                writer.cancel()
            self._lost(reason)
            await channel.close()

    async def _read(self, call: Any) -> None:
        async for data in call:
            if self._events is None:
                return
            self._events.on_message(data)

    async def _write(self, write: Callable[[bytes], Coroutine[Any, Any, None]]) -> None:
        import grpc

        # The reader tells of a broken stream.
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            await self._outbox.drain_into(write)

    def _lost(self, reason: str) -> None:
        events, self._events = self._events, None
        if events is not None:
            events.on_lost(reason)


async def _serve_stream(
    service: Service,
    handler: Handler | PerConnection,
    context: "grpc.aio.ServicerContext[bytes, bytes]",
    visitor: Visitor,
) -> None:
    """Answers one client's stream until it ends."""
    import grpc

    room = asyncio.Event()
    outbox = _Outbox(room.set)
    session = Session(service, handler, visitor.address, visitor.complain, outbox.put, room.set)
    writer: asyncio.Task[None] | None = None
    try:
        await context.send_initial_metadata(())  # tells the client that somebody is there
        writer = asyncio.get_running_loop().create_task(_write_replies(outbox, context))
        while isinstance(data := await context.read(), bytes):  # else grpc.aio.EOF
            if not session.receive(data):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "see the server's log")
            visitor.heard()
            while session.is_full or outbox.is_full:
                room.clear()
                await room.wait()
    finally:
        session.close()
        visitor.ended()
        if writer is not None:
            writer.cancel()


async def _write_replies(outbox: _Outbox, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
    with contextlib.suppress(*_departures()):  # the reader notices by itself that the client is gone
        await outbox.drain_into(context.write)


class _Server:
    """`RpcServer`: a gate, and the gRPC server behind it, which is there before the gate opens: gRPC ends a process that lacks
    descriptors while it starts."""

    def __init__(
        self,
        handlers: Mapping[Service, Handler | PerConnection],
        cluster_id: str,
        limits: DoorLimits | None,
        stranger: Stranger | None,
    ) -> None:
        self._handlers = handlers
        self._cluster_id = cluster_id
        limits = limits or DoorLimits.within(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._gate = Gate(limits, stranger=stranger)
        self._server: grpc.aio.Server | None = None

    @property
    def port(self) -> int:
        return self._gate.port

    async def open(self, host: str, port: int) -> None:
        try:
            await self._start()
            await self._gate.open(host, port)
        except OSError:
            await self.close()
            raise

    async def _start(self) -> None:
        import grpc

        self._server = grpc.aio.server(options=_SERVER_OPTIONS)
        for service, handler in self._handlers.items():
            self._server.add_generic_rpc_handlers((self._generic_handler(service, handler),))
        try:
            self._server.add_insecure_port(f"unix:{self._gate.socket_path}")
        except RuntimeError as error:
            raise OSError(f"gRPC cannot listen inside: {error}") from error
        await self._server.start()

    def _generic_handler(self, service: Service, handler: Handler | PerConnection) -> "grpc.GenericRpcHandler":
        import grpc

        async def exchange(_requests: object, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
            visitor = self._gate.visitor(context.peer() or "")
            if visitor is None:
                return  # it has left
            if self._cluster_id and (_CLUSTER_ID, self._cluster_id) in (context.invocation_metadata() or ()):
                visitor.known()
            with contextlib.suppress(*_departures()):
                await _serve_stream(service, handler, context, visitor)

        method: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(exchange)
        return grpc.method_handlers_generic_handler(service.name, {_METHOD: method})

    async def close(self) -> None:
        await self._gate.close()
        if self._server is not None:
            await self._server.stop(grace=None)
            # gRPC's own tasks end a moment after stop() returned, and one that ends with the loop logs a traceback.
            await asyncio.sleep(0.005)


class GrpcTransport:
    """One bidirectional gRPC stream for each peer and service."""

    def __init__(
        self, limits: DoorLimits | None = None, detours: Mapping[Endpoint, Endpoint] = MappingProxyType({})
    ) -> None:
        """``limits`` of each server: usually a share of the process's descriptors. ``detours``: addresses that are reached by
        way of others."""
        # gRPC's C core would write to stderr what it thinks of broken connections. Read when gRPC is first imported.
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
        self._tasks = _Tasks()
        self._cluster_id = ""
        self._limits = limits
        self._detours = detours

    async def prepare(self, cluster_id: str) -> None:
        import grpc

        self._cluster_id = cluster_id
        grpc.aio.init_grpc_aio()

    async def serve(
        self,
        host: str,
        port: int,
        handlers: Mapping[Service, Handler | PerConnection],
        stranger: Stranger | None = None,
    ) -> RpcServer:
        server = _Server(handlers, self._cluster_id, self._limits, stranger)
        await server.open(host, port)
        return server

    def channel(self, host: str, port: int, service: Service, on_broken: Callable[[], None]) -> RpcChannel:
        target = str(reached_by(self._detours, host, port))

        def connect(events: LinkEvents) -> _GrpcLink:
            return _GrpcLink(target, f"/{service.name}/{_METHOD}", self._cluster_id, events, self._tasks)

        return Channel(target, service, connect, on_broken)

    async def close(self) -> None:
        await self._tasks.wait()


def _departures() -> tuple[type[BaseException], ...]:
    """What a stream's own calls raise when the client is gone. gRPC cancels the task then, too, and logs a traceback for whatever leaves
    a handler."""
    import grpc

    return (asyncio.CancelledError, asyncio.InvalidStateError, grpc.aio.AioRpcError, grpc.aio.UsageError)
