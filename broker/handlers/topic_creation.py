"""Topics that come to be because somebody asked for them."""

import logging
from collections.abc import Iterable
from itertools import islice

from ottla.broker.context import BrokerContext
from ottla.broker.internal_topics import internal_topic
from ottla.log.names import is_valid_topic_name
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode

logger = logging.getLogger(__name__)

_IN_FLIGHT_MAX = 1000
LOOKED_AT_MAX = 10_000
"""Names of a request: 2 MiB have some 300,000, which take a tenth of a second."""
_TIMEOUT_MS = 30_000


class TopicCreation:
    """Asks the controller for unknown topics, each once at a time however many clients ask."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._in_flight: dict[str, None] = {}

    def create(self, names: Iterable[str]) -> None:
        """Begins to create what has a valid name, if ``auto.create.topics.enable`` allows it. Of very many those behind the first are
        not looked at."""
        if not self._broker.config.flag("auto.create.topics.enable"):
            return
        room = _IN_FLIGHT_MAX - len(self._in_flight)
        looked_at = dict.fromkeys(islice(names, LOOKED_AT_MAX))
        wanted = [name for name in looked_at if name not in self._in_flight and is_valid_topic_name(name)]
        if wanted := wanted[:room]:
            self._send(wanted)

    def _send(self, names: list[str]) -> None:
        topics = [self._asked(name) for name in names]
        request = controller_pb2.ControllerRequest(
            create_topics=controller_pb2.CreateTopicsRequest(topics=topics),
            origin=f"auto.create.topics.enable of broker {self._broker.node_id}",
        )
        self._in_flight.update(dict.fromkeys(names))

        def on_done(response: controller_pb2.ControllerResponse | None) -> None:
            for name in names:
                self._in_flight.pop(name, None)
            _report(names, response)

        self._broker.controller.call_back(request, on_done, _TIMEOUT_MS)

    def _asked(self, name: str) -> controller_pb2.CreateTopicsRequest.Topic:
        topic = internal_topic(name, self._broker.config)
        if topic is not None:
            return topic.asked(len(self._broker.image.brokers))
        return controller_pb2.CreateTopicsRequest.Topic(name=name, num_partitions=-1, replication_factor=-1)


def _report(names: list[str], response: controller_pb2.ControllerResponse | None) -> None:
    if response is None or response.error_code:
        logger.warning("Could not create %s: %s", ", ".join(names), response.error_message if response else "no answer")
        return
    for topic in response.create_topics.topics:
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.warning("Could not create topic %s: %s", topic.name, topic.error_message)
