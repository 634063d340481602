"""Replicas that are to be here and cannot be: their disk is full or failed, or the process had no descriptor left.

They are tried again, for there may be room by now. Meanwhile the controller hears of one that has no log in a directory that works
(KIP-858's lost directory, or one of our own for what was never there: it says so also after a restart), and leaves it out of the ISR: nobody else
would miss a replica that was never there, least of all one that is to lead.
"""

import logging
from collections.abc import Callable, Iterator

from ottla.broker.replication.hosting import Key
from ottla.quorum.metadata.views import DIRECTORIES_NOWHERE, DIRECTORY_LOST, DIRECTORY_NOT_MADE
from ottla.runtime.errors import KafkaError

RETRY_MS = 1_000

logger = logging.getLogger(__name__)


class OfflineReplicas:
    """The replicas that could not be hosted, by (topic id, index) and by (topic name, index)."""

    def __init__(self, host_again: Callable[[Key, bool], None], tell: Callable[[bytes, int, bytes], None]) -> None:
        """``host_again`` is given what `note` was told of the replica; ``tell`` tells the controller its directory."""
        self._host_again = host_again
        self._tell = tell
        self._names: dict[tuple[str | bytes, int], str] = {}
        self._new: dict[Key, bool] = {}

    def __contains__(self, key: tuple[str | bytes, int]) -> bool:
        return key in self._names

    def __iter__(self) -> Iterator[tuple[str | bytes, int]]:
        return iter(self._names)

    def note(self, key: Key, topic: str, error: Exception, *, is_new: bool, is_lost: bool) -> None:
        """A replica could not be hosted. Said once. ``is_lost``: it has no log, and the controller does not know. ``is_new``: nor could
        there be one, and that stays true, whatever the metadata says of it before it is hosted."""
        self._new[key] = is_new or self._new.get(key, False)
        if key in self._names:
            return
        logger.error("%s-%d is offline: %s", topic, key[1], error, exc_info=not is_expected(error))
        self._names[key] = self._names[topic, key[1]] = topic
        if is_lost:
            self._tell(*key, DIRECTORY_NOT_MADE if self._new[key] else DIRECTORY_LOST)

    def came_from(self, key: Key) -> tuple[bytes, ...]:
        """The directories that the controller may take for that of a replica which had nothing in them: of one that was never here, those
        that are none. Else it would count as made anew in the place of what is gone, and not lead where it was the last in sync."""
        return DIRECTORIES_NOWHERE if self._new.get(key) else ()

    def forget(self, key: Key) -> None:
        """A replica is hosted, or not to be hosted any more."""
        self._new.pop(key, None)
        name = self._names.pop(key, None)
        if name is not None:
            self._names.pop((name, key[1]), None)

    def retry(self) -> None:
        for key, is_new in self._new.items():
            self._host_again(key, is_new)


def is_expected(error: Exception) -> bool:
    """Whether it is a disk's or a peer's fault, not ours: those need no traceback."""
    return isinstance(error, KafkaError | OSError)
