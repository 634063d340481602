"""ListGroups (16): there are none yet."""

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.list_groups_request import ListGroupsRequest
from ottla.broker.wire.messages.list_groups_response import ListGroupsResponse


def routes(broker: BrokerContext) -> list[Route]:
    return [route("ListGroups", ListGroupsRequest, _answer)]


def _answer(request: RequestContext, body: ListGroupsRequest) -> None:
    request.respond_message(ListGroupsResponse())
