"""Who is told which partitions of a topic this broker leads: a coordinator lives from `elected` to `resigned`."""

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from ottla.broker.replication.partition import Partition

logger = logging.getLogger(__name__)


class TopicListener(Protocol):
    """Each is called once, in this order: elections and resignations by turns, a deletion last.

    A topic that takes an older one's name is another: the older one's partitions are deleted before. What the listener raises is
    logged and hurts nobody else. A call is one step of the loop among many: what takes long belongs into a later one.
    """

    def elected(self, partition: Partition, leader_epoch: int) -> None:
        """This broker leads the partition, from this epoch on. A new epoch of a leader that stays is a resignation before."""
        ...

    def resigned(self, partition: Partition, leader_epoch: int) -> None:
        """It leads in that epoch no more, or cannot: another leads, the replica or its disk is gone, or the broker stops.

        Whoever waited for a record of that epoch was told so before, but for a stop and for a leader that stays.
        """
        ...

    def deleted(self, partition: Partition) -> None:
        """The replica here is gone: its topic was deleted, or it was reassigned to other brokers."""
        ...


class TopicListeners:
    """What listeners were told so far, and so what they have to be told."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[TopicListener]] = {}
        self._led: dict[Partition, int] = {}  # of topics with listeners: the epoch that they were told of
        self._closed = False

    def add(self, topic: str, listener: TopicListener, hosted: Iterable[Partition]) -> None:
        """Tells it at once of those of ``hosted``, the topic's partitions, that are led here."""
        self._listeners.setdefault(topic, []).append(listener)
        for partition in hosted:
            if partition in self._led:
                _tell(listener.elected, partition, self._led[partition])
            else:
                self.look_at(partition)

    def look_at(self, partition: Partition) -> None:
        """Its role may have changed."""
        if partition.topic not in self._listeners or self._closed:
            return
        leader = partition.leader
        epoch, told = (leader.epoch if leader is not None else None), self._led.get(partition)
        if epoch == told:
            return
        self._resign(partition)
        if epoch is not None:
            self._led[partition] = epoch
            for listener in self._listeners[partition.topic]:
                _tell(listener.elected, partition, epoch)

    def gone(self, partition: Partition) -> None:
        """The replica was dropped."""
        if self._closed:
            return
        self._resign(partition)
        for listener in self._listeners.get(partition.topic, ()):
            _tell(listener.deleted, partition)

    def close(self) -> None:
        """The broker stops: nothing is led from here on, and nothing more is told."""
        self._closed = True
        for partition in list(self._led):
            self._resign(partition)

    def _resign(self, partition: Partition) -> None:
        epoch = self._led.pop(partition, None)
        if epoch is not None:
            for listener in self._listeners[partition.topic]:
                _tell(listener.resigned, partition, epoch)


def _tell(method: Callable[..., None], *args: object) -> None:
    try:
        method(*args)
    except Exception:
        logger.exception("A listener of partitions failed, which is our mistake")
