"""DescribeCluster (60): the brokers, as the asking listener sees them."""

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import CLUSTER_OPERATIONS, operations, route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.broker.wire.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from ottla.runtime.errors import ErrorCode

_BROKERS = 1
_CONTROLLERS = 2


def routes(broker: BrokerContext) -> list[Route]:
    def answer(request: RequestContext, body: DescribeClusterRequest) -> None:
        request.respond_message(_response(broker, body, request.connection.listener_name))

    return [route("DescribeCluster", DescribeClusterRequest, answer)]


def _response(broker: BrokerContext, body: DescribeClusterRequest, listener_name: str) -> DescribeClusterResponse:
    if body.endpoint_type != _BROKERS:
        controllers = body.endpoint_type == _CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if controllers else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(
            error_code=code, error_message="this listener tells of brokers only", endpoint_type=body.endpoint_type
        )
    brokers = []
    for broker_id, view in sorted(broker.image.brokers.items()):
        address = view.address_on(listener_name)
        if address is not None and (body.include_fenced_brokers or not view.fenced):
            brokers.append(DescribeClusterBroker(broker_id, *address, view.rack, view.fenced))
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=_administrator(broker, brokers),
        brokers=brokers,
        cluster_authorized_operations=operations(body.include_cluster_authorized_operations, CLUSTER_OPERATIONS),
    )


def _administrator(broker: BrokerContext, brokers: list[DescribeClusterBroker]) -> int:
    """Any broker passes administrative requests on to the controller; this one if clients can reach it."""
    alive = [each.broker_id for each in brokers if not each.is_fenced]
    return broker.node_id if broker.node_id in alive else next(iter(alive), -1)
