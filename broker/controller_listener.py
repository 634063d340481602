"""The controllers' listener in Kafka's protocol, for administrators (``--bootstrap-controller``).

It has no port of its own: who begins as Kafka's clients do on the port of the quorum's RPC comes here. Kafka's users give their
controllers one name in ``controller.listener.names`` and their firewall one rule; that goes on.
"""

import asyncio
from collections.abc import Callable

from ottla.broker.context import NodeContext
from ottla.broker.handlers.routes import controller_routes
from ottla.broker.network.server import NetworkServer
from ottla.proto import controller_pb2 as pb
from ottla.quorum.controller.channel import LocalHandler, OnDone
from ottla.runtime.errors import ErrorCode
from ottla.runtime.settings.security import PROTOCOL_MAP, protocol_of

Entrance = Callable[[asyncio.Transport, bytes], None]


class OwnController:
    """In `ControllerChannel`'s place: this node's controller and no other is asked, once. Who is not the active one says so."""

    def __init__(self, handle: LocalHandler) -> None:
        self._handle = handle

    def call_back(self, request: pb.ControllerRequest, on_done: OnDone, timeout_ms: int) -> None:
        """Calls ``on_done`` once; with None when there was no answer in time."""
        waiting: list[OnDone] = [on_done]

        def settle(response: pb.ControllerResponse | None) -> None:
            if waiting:
                timer.cancel()
                waiting.pop()(response)

        timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, settle, None)
        self._handle(request, lambda response: settle(_with_words(response)))


def _with_words(response: pb.ControllerResponse) -> pb.ControllerResponse:
    if response.error_code == ErrorCode.NOT_CONTROLLER and not response.error_message:
        active = f"node {response.leader_id} is" if response.HasField("leader_id") else "nobody is known to be"
        response.error_message = f"{active} the active controller"
    return response


def entrance(network: NetworkServer, node: NodeContext) -> Entrance:
    """Where `RpcTransport.serve` sends strangers."""
    listener = node.config.controller_listener
    assert listener is not None, "settings are checked before a node starts"
    protocol = protocol_of(listener.name, node.config.string(PROTOCOL_MAP))
    return network.entrance(listener.name, controller_routes(node), protocol)
