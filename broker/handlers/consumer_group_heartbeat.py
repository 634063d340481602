"""ConsumerGroupHeartbeat (68), versions 0 and 1: the newer protocol of groups (KIP-848). What is decided stands in `broker/coordinator`.

Where it is not in use, requests are refused in the way that makes clients give up at the first answer, and tell the application. An API
that is not offered at all is not enough: librdkafka's poll does not return then.
"""

import logging

from ottla.broker.context import BrokerContext
from ottla.broker.coordinator.decisions.groups.consumer.requests import refused
from ottla.broker.coordinator.decisions.groups.describing import CONSUMER
from ottla.broker.handlers.common import route
from ottla.broker.handlers.groups import Asking
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.quorum.controller.decisions.features import GROUP_VERSION
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.seldom import Seldom

NOT_IN_USE = (
    "the consumer protocol (KIP-848) is not in use: it needs the feature group.version at 1, and consumer among "
    "group.coordinator.rebalance.protocols; or set group.protocol=classic"
)

logger = logging.getLogger(__name__)


def routes(broker: BrokerContext) -> list[Route]:
    refusals = Seldom(logger)
    is_allowed = CONSUMER in broker.config.strings("group.coordinator.rebalance.protocols")

    def heartbeat(request: RequestContext, body: ConsumerGroupHeartbeatRequest) -> None:
        asking = Asking(request)
        if not is_allowed or broker.image.features.get(GROUP_VERSION, 0) < 1:
            refusals.warn("Client %.100r, group %.249r: %s", request.client_id, body.group_id, NOT_IN_USE)
            asking.answer(refused(ErrorCode.UNSUPPORTED_VERSION, NOT_IN_USE))
            return
        try:
            shard = broker.groups.shard_of(body.group_id)
        except KafkaError as error:
            asking.answer(refused(error.code, error.message))
        else:
            shard.heartbeats.heartbeat(asking, body)

    return [route("ConsumerGroupHeartbeat", ConsumerGroupHeartbeatRequest, heartbeat)]
