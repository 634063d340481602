"""ListConfigResources (74): what has settings. Groups and client metrics that were given some; every topic and broker.

Version 0, once ListClientMetricsResources, asks for client metrics only. There are no loggers to be set, and so no broker has any.
"""

from collections.abc import Callable, Iterable

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.cluster_view import reachable_brokers
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from ottla.broker.wire.messages.list_config_resources_response import ConfigResource, ListConfigResourcesResponse
from ottla.quorum.metadata.views import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from ottla.runtime.errors import ErrorCode

_LOGGERS = 8
_WITH_TYPES = 1
"""From this version on a request says which types it is about; none: all."""

_Names = Callable[[BrokerContext, str], Iterable[str]]


def _configured(kind: int) -> _Names:
    return lambda broker, _listener: sorted(name for each, name in broker.image.configs if each == kind)


_NAMES: dict[int, _Names] = {
    TOPIC_RESOURCE: lambda broker, _listener: sorted(broker.image.topics_by_name),
    BROKER_RESOURCE: lambda broker, listener: map(str, reachable_brokers(broker.image, listener)),
    _LOGGERS: lambda _broker, _listener: (),
    CLIENT_METRICS_RESOURCE: _configured(CLIENT_METRICS_RESOURCE),
    GROUP_RESOURCE: _configured(GROUP_RESOURCE),
}


def routes(broker: BrokerContext) -> list[Route]:
    def answer(request: RequestContext, body: ListConfigResourcesRequest) -> None:
        asked = set(body.resource_types) if request.version >= _WITH_TYPES else {CLIENT_METRICS_RESOURCE}
        if asked - _NAMES.keys():
            request.respond_message(ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
            return
        resources = [
            ConfigResource(name, kind)
            for kind, names in _NAMES.items()
            if kind in asked or not asked
            for name in names(broker, request.listener_name)
        ]
        request.respond_message(ListConfigResourcesResponse(config_resources=resources))

    return [route("ListConfigResources", ListConfigResourcesRequest, answer)]
