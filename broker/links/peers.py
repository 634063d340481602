"""The other brokers, for whoever has to ask one of them something now and then: a link to each that was asked once."""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from ottla.broker.links.broker_link import BrokerLink, LinkSettings
from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.codec import decoder, encoder
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.timers import LoopTimers, Timer

logger = logging.getLogger(__name__)

CONNECT_MS = 1_000
"""A question that could not even be sent by then has no answer: there may be another broker to ask."""

Told = Callable[[Any | None], None]
"""Gets the response; None where there is none: the broker is away, does not answer in time, or does not speak the API."""


class Peers:
    """Each question is answered once, in any case, and never before `ask` returns."""

    def __init__(self, config: ServerConfig, image: MetadataImage, timers: LoopTimers, purpose: str) -> None:
        """``image`` is the node's own, which changes; ``purpose``: what the others read in their logs."""
        self._image = image
        self._timers = timers
        self._listener_name = config.inter_broker_listener_name
        self._settings = LinkSettings(client_id=f"broker-{config.node_id}-{purpose}", detours=config.detours)
        self._peers: dict[int, _Peer] = {}

    def ask(
        self,
        broker_id: int,
        request: msgspec.Struct,
        response: type[msgspec.Struct],
        versions: tuple[int, int],
        timeout_ms: int,
        told: Told,
    ) -> None:
        """Sends ``request`` in the greatest of ``versions`` that the broker speaks. Questions to one broker go in their order."""
        peer = self._peers.get(broker_id)
        if peer is None:
            peer = self._peers[broker_id] = _Peer(broker_id, self._settings, self._timers)
            peer.link.move(self._address_of(broker_id))
        peer.ask(_Question(request, response, versions, told), timeout_ms)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Brokers come, go and move."""
        for broker_id in delta.brokers:
            peer = self._peers.get(broker_id)
            if peer is None:
                continue
            peer.move(self._address_of(broker_id))
            if broker_id not in image.brokers:
                del self._peers[broker_id]
                peer.close()

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        broker = self._image.brokers.get(broker_id)
        return broker.address_on(self._listener_name) if broker is not None else None

    def close(self) -> None:
        """Nobody is told anything any more."""
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            peer.link.close()


class _Question:
    __slots__ = ("is_sent", "request", "response", "timer", "told", "versions")

    def __init__(
        self, request: msgspec.Struct, response: type[msgspec.Struct], versions: tuple[int, int], told: Told
    ) -> None:
        self.request = request
        self.response = response
        self.versions = versions
        self.told: Told | None = told
        self.timer: Timer | None = None
        self.is_sent = False

    def tell(self, answer: msgspec.Struct | None) -> None:
        told, self.told = self.told, None
        if told is None:
            return
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None  # it knows this object: a cycle for each question otherwise
        try:
            told(answer)
        except Exception:
            logger.exception("Who asked another broker failed at its answer, which is our mistake")


class _Peer:
    """One broker: what was asked of it and is not answered yet."""

    def __init__(self, broker_id: int, settings: LinkSettings, timers: LoopTimers) -> None:
        self._timers = timers
        self._waiting: deque[_Question] = deque()
        self._sent: deque[_Question] = deque()
        self.link = BrokerLink(broker_id, settings, timers, self._send, lambda _: self._lost())
        self.link.connect()

    def ask(self, question: _Question, timeout_ms: int) -> None:
        more_ms = max(timeout_ms - CONNECT_MS, 0)
        question.timer = self._timers.call_later_ms(timeout_ms - more_ms, partial(self._look_at, question, more_ms))
        while self._waiting and self._waiting[0].told is None:
            self._waiting.popleft()  # it has its answer; a broker that is out of reach for long would gather them all
        self._waiting.append(question)
        self._send()

    def _look_at(self, question: _Question, more_ms: int) -> None:
        if question.is_sent and more_ms:
            question.timer = self._timers.call_later_ms(more_ms, partial(question.tell, None))
        else:
            question.tell(None)

    def move(self, address: tuple[str, int] | None) -> None:
        if self.link.move(address):
            self._lost()

    def close(self) -> None:
        self.link.close()
        self._lost()
        waiting, self._waiting = self._waiting, deque()
        for question in waiting:
            question.tell(None)

    def _lost(self) -> None:
        sent, self._sent = self._sent, deque()
        for question in sent:
            question.tell(None)

    def _send(self) -> None:
        while self._waiting and self.link.room > 0:
            question = self._waiting.popleft()
            if question.told is not None:
                self._send_one(question)

    def _send_one(self, question: _Question) -> None:
        kind = type(question.request)
        key = BY_NAME[kind.__name__.removesuffix("Request")].key
        version = self.link.version(key, *question.versions)
        if version < 0:
            self._timers.call_later_ms(0, partial(question.tell, None))
            return
        question.is_sent = True
        body = b"".join(encoder(kind, version)(question.request))
        self._sent.append(question)
        self.link.request(key, version, body, partial(self._answered, version))

    def _answered(self, version: int, frame: memoryview, position: int) -> None:
        question = self._sent.popleft()
        answer, _ = decoder(question.response, version)(frame, position)
        self.link.worked()
        question.tell(answer)
        self._send()
