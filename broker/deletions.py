"""Deletes logs a few in a turn of the loop: a topic may have thousands of partitions, and each costs a rename and its open files.

What is written about them at the root of their directories goes later, once for all of them.
"""

import logging
from collections.abc import Callable

from ottla.log.directories.manager import LogManager
from ottla.log.names import TopicPartition
from ottla.runtime.errors import KafkaError
from ottla.runtime.timers import LoopTimers

TURN_LOGS_MAX = 50
GATHER_MS = 100

logger = logging.getLogger(__name__)


class Deletions:
    """Logs on their way out. Nobody serves them any more, and their names may be asked for again: `finish` first."""

    def __init__(self, manager: LogManager, timers: LoopTimers, wall_ms: Callable[[], int]) -> None:
        self._manager = manager
        self._timers = timers
        self._wall_ms = wall_ms
        self._waiting: dict[TopicPartition, tuple[bytes, ...]] = {}
        """With the ids of the topics that had the name, one after the other."""
        self._turn_left = TURN_LOGS_MAX
        self._turn_planned = self._gathering = self._closed = False

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._waiting

    def add(self, partition: TopicPartition, topic_id: bytes) -> None:
        """Deletes a topic's log in this turn, if there were few; else in one of the next."""
        if self._turn_left > 0:
            self._delete(partition, topic_id)
        else:
            self._waiting[partition] = (*self._waiting.get(partition, ()), topic_id)
        self._plan_turn()

    def finish(self, partition: TopicPartition) -> None:
        """Deletes the partition's log now, if it waits."""
        for topic_id in self._waiting.pop(partition, ()):
            self._delete(partition, topic_id)

    def close(self) -> None:
        """Deletes all that waits, now: the next start would find logs that nobody assigns to this broker."""
        self._closed = True
        for partition in list(self._waiting):
            self.finish(partition)

    def gather(self) -> None:
        """Logs went: what is written about them goes within a moment."""
        if not self._gathering and not self._closed:
            self._gathering = True
            self._timers.call_later_ms(GATHER_MS, self._drop_gone)

    def _delete(self, partition: TopicPartition, topic_id: bytes) -> None:
        self._turn_left -= 1
        try:
            self._manager.delete(partition, self._wall_ms(), topic_id)
        except KafkaError as error:
            logger.error("Could not delete %s: %s", partition, error.message)

    def _plan_turn(self) -> None:
        if not self._turn_planned:
            self._turn_planned = True
            self._timers.call_later_ms(0, self._take_turn)

    def _take_turn(self) -> None:
        self._turn_planned = False
        self._turn_left = TURN_LOGS_MAX
        while self._waiting and self._turn_left > 0:
            self.finish(next(iter(self._waiting)))
        if self._waiting:
            self._plan_turn()
        else:
            self.gather()

    def _drop_gone(self) -> None:
        self._gathering = False
        if not self._closed and not self._manager.checkpoints.drop_gone():
            self.gather()
