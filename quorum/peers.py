"""The channels to the other nodes of the quorum, made when they are first needed."""

import asyncio
from collections.abc import Callable

from ottla.proto import quorum_pb2 as pb
from ottla.quorum.raft.voters import Endpoint
from ottla.quorum.rpc.transport import OnDone, Request, RpcChannel, RpcTransport, Service

QUORUM_SERVICE = Service("ottla.quorum.Quorum", pb.QuorumRequest, pb.QuorumResponse)


class Peers:
    """The channels, one a peer; another when the peer is found at another endpoint. Once closed, nobody is called any more."""

    def __init__(
        self, transport: RpcTransport, on_broken: Callable[[int], None], service: Service = QUORUM_SERVICE
    ) -> None:
        self._transport = transport
        self._on_broken = on_broken
        self._service = service
        self._channels: dict[int, tuple[Endpoint, RpcChannel]] = {}
        self._closed = False

    def call(self, peer: int, endpoint: Endpoint, request: Request, on_done: OnDone, timeout_ms: int) -> None:
        if self._closed:
            asyncio.get_running_loop().call_soon(on_done, None)
            return
        self._channel(peer, endpoint).call(request, on_done, timeout_ms)

    def _channel(self, peer: int, endpoint: Endpoint) -> RpcChannel:
        known_endpoint, known = self._channels.get(peer, (None, None))
        if known is not None and known_endpoint == endpoint:
            return known
        if known is not None:
            known.close()
        channel = self._transport.channel(endpoint.host, endpoint.port, self._service, lambda: self._on_broken(peer))
        self._channels[peer] = (endpoint, channel)
        return channel

    def close(self) -> None:
        self._closed = True
        for _, channel in self._channels.values():
            channel.close()
        self._channels.clear()
