"""Syncs logs behind their appends, for topics with ``ottla.flush.before.ack``: one group commit at a time for each log."""

from collections.abc import Callable
from functools import partial

from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.results import SyncTicket
from ottla.runtime.errors import KafkaError
from ottla.runtime.sync_later import SyncLater

OnStable = Callable[[int], None]


class Durability:
    """Says how far each log is on stable storage."""

    def __init__(self, sync_later: SyncLater) -> None:
        self._sync_later = sync_later
        self._waiting: dict[Log, OnStable] = {}
        self._stuck: dict[Log, None] = {}

    def follow(self, log: Log, on_stable: OnStable) -> None:
        """Syncs until all of the log is stable; tells ``on_stable`` up to which offset after each round.

        Asked again meanwhile, the newer callback takes the older one's place. A log whose directory failed is not heard of
        any more. One that was left half-way is read anew, and may end earlier than it did.
        """
        running = log in self._waiting
        if log.abandoned:
            return
        self._waiting[log] = on_stable
        if not running:
            self._next(log)

    def moved(self, log: Log) -> None:
        """Another log took this one's place, with everything in it stable."""
        self._stuck.pop(log, None)
        on_stable = self._waiting.pop(log, None)
        if on_stable is not None:
            on_stable(log.log_end_offset)

    def finish_cut(self, log: Log, on_done: Callable[[KafkaError | None], None]) -> None:
        """Makes a cut stable that was made without a sync; many share one."""
        sync, generation = log.cut_sync()

        def synced(error: OSError | None) -> None:
            if error is None:
                log.cut_synced(generation)
                on_done(None)
            else:
                on_done(log.root.failed(error))

        self._sync_later.sync(sync, synced)

    def retry(self) -> None:
        """Tries again from time to time: what could not be synced for want of room or descriptors may be by now."""
        stuck, self._stuck = self._stuck, {}
        for log in stuck:
            if log.abandoned:
                self._waiting.pop(log, None)
            else:
                self._next(log)

    def _next(self, log: Log) -> None:
        try:
            log.make_whole()  # who waits here may be the only one who uses it
            ticket = log.unsynced()
        except StorageError:
            self._stuck[log] = None
            return
        if ticket is not None:
            self._sync_later.sync(ticket.file, partial(self._synced, log, ticket))
        else:
            self._waiting.pop(log)(log.recovery_point)

    def _synced(self, log: Log, ticket: SyncTicket, error: OSError | None) -> None:
        if error is not None and not log.abandoned:
            log.root.failed(error)  # after which it is abandoned, unless it may pass
            self._stuck[log] = None
            return
        if log.abandoned:
            self._waiting.pop(log, None)
            return
        log.mark_synced(ticket)
        if not log.must_sync:  # its name was all that had to be durable
            self._waiting.pop(log)(log.log_end_offset)
            return
        if log.recovery_point < log.log_end_offset:
            self._waiting[log](log.recovery_point)
        self._next(log)
