"""The topics that brokers keep their own state in: what they are like, and that they are there when somebody needs them.

Source: Kafka's AutoTopicCreationManager and the topic configs of its coordinators; kraft.md 5.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.controller_errand import Controller
from ottla.proto import controller_pb2
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.errors import ErrorCode
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.timers import LoopTimers, Timer

GROUPS, TRANSACTIONS, SHARE_GROUPS = "__consumer_offsets", "__transaction_state", "__share_group_state"
INTERNAL_TOPICS = (GROUPS, TRANSACTIONS, SHARE_GROUPS)

MIN_ISR = "min.insync.replicas"

FIRST_BACKOFF_MS, BACKOFF_MS_MAX = 100, 5_000
REQUEST_TIMEOUT_MS = 10_000
PATIENCE_MS = 3_000
"""So long the first topic waits for as many brokers as there are controllers: most nodes are both."""
WAITERS_MAX = 10_000

OnReady = Callable[[int], None]

logger = logging.getLogger(__name__)


class InternalTopic(NamedTuple):
    """What an internal topic is to be like."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]

    def asked(self, brokers: int) -> controller_pb2.CreateTopicsRequest.Topic:
        """The request for it, with as many replicas as so many brokers can have, and no more of them required to be in sync."""
        replicas = max(1, min(self.replication_factor, brokers))
        configs = dict(self.configs)
        if MIN_ISR in configs:
            configs[MIN_ISR] = str(min(int(configs[MIN_ISR]), replicas))
        return controller_pb2.CreateTopicsRequest.Topic(
            name=self.name,
            num_partitions=self.partitions,
            replication_factor=replicas,
            configs=[controller_pb2.TopicConfig(name=name, value=value) for name, value in configs.items()],
        )


def internal_topic(name: str, config: ServerConfig) -> InternalTopic | None:
    """The internal topic of that name; None for another one."""
    if name == GROUPS:
        prefix, configs = "offsets.topic", {"cleanup.policy": "compact", "compression.type": "producer"}
    elif name == TRANSACTIONS:
        prefix = "transaction.state.log"
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
        }
    elif name == SHARE_GROUPS:
        prefix = "share.coordinator.state.topic"
        configs = {"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"}
    else:
        return None
    configs["segment.bytes"] = str(config.integer(f"{prefix}.segment.bytes"))
    if name != GROUPS:
        configs[MIN_ISR] = str(config.integer(f"{prefix}.min.isr"))
    partitions = config.integer(f"{prefix}.num.partitions")
    return InternalTopic(name, partitions, config.integer(f"{prefix}.replication.factor"), configs)


class InternalTopics:
    """Has internal topics made when they are needed: each asked for once at a time, again with growing pauses as long as somebody waits.

    A metadata publisher: a topic is there when this node knows it, whoever made it, and whatever it is like.
    """

    def __init__(
        self, controller: Controller, config: ServerConfig, image: MetadataImage, timers: LoopTimers, node_id: int
    ) -> None:
        """``image`` is the node's own, which changes."""
        self._controller = controller
        self._config = config
        self._image = image
        self._timers = timers
        self._node_id = node_id
        self._missing: dict[str, _Missing] = {}
        self._closed = False

    def require(self, name: str, on_ready: OnReady, timeout_ms: int) -> None:
        """Calls back once: with NONE when there is a topic of that name, which may be at once, or with why there is none in time."""
        if name in self._image.topics_by_name:
            on_ready(ErrorCode.NONE)
            return
        topic = internal_topic(name, self._config)
        assert topic is not None, f"{name} is no internal topic"
        missing = self._missing.get(name)
        if self._closed or (missing is not None and len(missing.waiters) >= WAITERS_MAX):
            on_ready(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        is_first = missing is None
        missing = missing or _Missing(topic)
        self._missing[name] = missing
        self._wait(missing, on_ready, timeout_ms)
        if is_first:
            self._ask(missing)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for name in [name for name in self._missing if name in image.topics_by_name]:
            self._settle(self._missing.pop(name), ErrorCode.NONE)

    def close(self) -> None:
        """Tells who waits that nothing comes."""
        self._closed = True
        for name in list(self._missing):
            self._settle(self._missing.pop(name), ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _wait(self, missing: "_Missing", on_ready: OnReady, timeout_ms: int) -> None:
        waiter = _Waiter(on_ready)
        missing.waiters[waiter] = None
        waiter.timer = self._timers.call_later_ms(timeout_ms, lambda: self._expire(missing, waiter))

    def _ask(self, missing: "_Missing") -> None:
        missing.retry = None
        name = missing.topic.name
        if self._missing.get(name) is not missing:
            return
        if not missing.waiters:
            del self._missing[name]  # nobody waits any more: who comes next asks at once
            return
        brokers = sum(not each.is_leaving for each in self._image.brokers.values())
        if brokers < min(missing.topic.replication_factor, len(self._image.controllers)) and missing.patience_ms > 0:
            # A cluster that starts: its other nodes are about to register, and who has fewer replicas has them for good.
            missing.patience_ms -= FIRST_BACKOFF_MS
            missing.retry = self._timers.call_later_ms(FIRST_BACKOFF_MS, lambda: self._ask(missing))
            return
        topic = missing.topic.asked(brokers)
        if topic.replication_factor < missing.topic.replication_factor:
            logger.warning("%s gets %d replicas: there are %d brokers", name, topic.replication_factor, brokers)
        request = controller_pb2.ControllerRequest(
            create_topics=controller_pb2.CreateTopicsRequest(topics=[topic]),
            origin=f"a coordinator of broker {self._node_id}",
        )
        self._controller.call_back(request, lambda told: self._answered(missing, told), REQUEST_TIMEOUT_MS)

    def _answered(self, missing: "_Missing", told: controller_pb2.ControllerResponse | None) -> None:
        if self._missing.get(missing.topic.name) is not missing:
            return
        missing.error, message = _outcome(told)
        if missing.error != ErrorCode.REQUEST_TIMED_OUT:  # else it is there, or was: this node will hear of it
            logger.warning("Could not create %s: %s", missing.topic.name, message)
        missing.retry = self._timers.call_later_ms(missing.backoff_ms, lambda: self._ask(missing))
        missing.backoff_ms = min(2 * missing.backoff_ms, BACKOFF_MS_MAX)

    @staticmethod
    def _expire(missing: "_Missing", waiter: "_Waiter") -> None:
        del missing.waiters[waiter]
        waiter.timer = None  # which knows it
        waiter.on_ready(missing.error)

    @staticmethod
    def _settle(missing: "_Missing", error: int) -> None:
        if missing.retry is not None:
            missing.retry.cancel()
        for waiter in missing.waiters:
            if waiter.timer is not None:
                waiter.timer.cancel()
                waiter.timer = None
            waiter.on_ready(error)


class _Waiter:
    __slots__ = ("on_ready", "timer")

    def __init__(self, on_ready: OnReady) -> None:
        self.on_ready = on_ready
        self.timer: Timer | None = None


class _Missing:
    """A topic that is not there yet, and who waits for it."""

    __slots__ = ("backoff_ms", "error", "patience_ms", "retry", "topic", "waiters")

    def __init__(self, topic: InternalTopic) -> None:
        self.topic = topic
        self.waiters: dict[_Waiter, None] = {}
        self.error: int = ErrorCode.REQUEST_TIMED_OUT
        self.retry: Timer | None = None
        self.backoff_ms = FIRST_BACKOFF_MS
        self.patience_ms = PATIENCE_MS


def _outcome(told: controller_pb2.ControllerResponse | None) -> tuple[int, str]:
    """REQUEST_TIMED_OUT for one that is made, but that this node does not know yet."""
    if told is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "the controller does not answer"
    if told.error_code:
        return told.error_code, told.error_message
    (topic,) = told.create_topics.topics
    if topic.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return ErrorCode.REQUEST_TIMED_OUT, ""
    return topic.error_code, topic.error_message
