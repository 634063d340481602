"""DescribeCluster (60): the brokers, as the asking listener sees them; on a controller's listener the controllers, and which is active.

That is how clients that know controllers only (``--bootstrap-controller``, KIP-919) find whom to ask.
"""

from collections.abc import Callable

from ottla.broker.context import NodeContext
from ottla.broker.handlers.common import CLUSTER_OPERATIONS, operations, route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.broker.wire.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from ottla.runtime.errors import ErrorCode

_BROKERS, _CONTROLLERS = 1, 2
_NAMES = {_BROKERS: "BROKER", _CONTROLLERS: "CONTROLLER"}
_NOBODY = -1

Nodes = list[DescribeClusterBroker]
_Found = tuple[int, Nodes]
"""Whom to send administrative requests to, and everybody."""


def routes(node: NodeContext) -> list[Route]:
    """Of a client listener."""
    return _routes(node, _BROKERS, _brokers)


def controller_routes(node: NodeContext) -> list[Route]:
    """Of a controller's listener."""
    return _routes(node, _CONTROLLERS, _controllers)


def _routes(
    node: NodeContext, kind: int, find: Callable[[NodeContext, DescribeClusterRequest, str], _Found]
) -> list[Route]:
    def answer(request: RequestContext, body: DescribeClusterRequest) -> None:
        refusal = _refusal(body.endpoint_type, kind)
        if refusal is not None:
            request.respond_message(refusal)
            return
        administrator, nodes = find(node, body, request.listener_name)
        asked = operations(body.include_cluster_authorized_operations, CLUSTER_OPERATIONS)
        request.respond_message(
            DescribeClusterResponse(
                endpoint_type=kind,
                cluster_id=node.cluster_id,
                controller_id=administrator,
                brokers=nodes,
                cluster_authorized_operations=asked,
            )
        )

    return [route("DescribeCluster", DescribeClusterRequest, answer)]


def _refusal(asked: int, kind: int) -> DescribeClusterResponse | None:
    if asked == kind:
        return None
    if asked not in _NAMES:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=f"Unsupported endpoint type {asked}"
        )
    option = {_BROKERS: "--bootstrap-server", _CONTROLLERS: "--bootstrap-controller"}[kind]
    message = f"this is a {_NAMES[kind]}, asked for was a {_NAMES[asked]}: name it with {option}"
    return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=message)


def _brokers(node: NodeContext, body: DescribeClusterRequest, listener_name: str) -> _Found:
    brokers = []
    for broker_id, view in sorted(node.image.brokers.items()):
        address = view.address_on(listener_name)
        if address is not None and (body.include_fenced_brokers or not view.fenced):
            brokers.append(DescribeClusterBroker(broker_id, *address, view.rack, view.fenced))
    # Any broker passes administrative requests on to the controller; this one if clients can reach it.
    alive = [each.broker_id for each in brokers if not each.is_fenced]
    return node.node_id if node.node_id in alive else next(iter(alive), _NOBODY), brokers


def _controllers(node: NodeContext, _body: DescribeClusterRequest, listener_name: str) -> _Found:
    """As they registered. A rack is no matter of theirs (nor in Kafka)."""
    controllers = [
        DescribeClusterBroker(view.id, end.host, end.port, None)
        for _, view in sorted(node.image.controllers.items())
        for end in view.endpoints
        if end.name == listener_name
    ]
    leader_id = node.quorum.leader.leader_id
    return _NOBODY if leader_id is None else leader_id, controllers
