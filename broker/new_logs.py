"""Makes the names and topic ids of new logs durable, many at once, before anybody waits for it.

Creating 10,000 partitions must not cost 20,000 syncs, nor block requests; and a client rarely writes to a partition within the
milliseconds that this takes. One that does waits: the log is `must_sync` until then.
"""

from functools import partial

from ottla.log.directories.directory import DirectoryState
from ottla.log.directories.names_sync import NamesSync
from ottla.log.log import Log
from ottla.log.results import SyncTicket
from ottla.runtime.disk import Disk
from ottla.runtime.sync_later import SyncLater
from ottla.runtime.timers import LoopTimers

GATHER_MS = 1


class NewLogs:
    """The logs whose names are not durable yet."""

    def __init__(self, disk: Disk, timers: LoopTimers) -> None:
        self._disk = disk
        self._timers = timers
        self._sync_later = SyncLater()  # of their own: no acknowledgement of an older log waits behind them
        self._waiting: dict[Log, None] = {}
        self._closed = False

    def sync_soon(self, log: Log) -> None:
        """Syncs a log's names with the others that come in the same moment."""
        if not self._waiting:
            self._timers.call_later_ms(GATHER_MS, self._sync)
        self._waiting[log] = None

    def close(self) -> None:
        """Whoever closes the logs makes them durable himself."""
        self._closed = True
        self._waiting.clear()
        self._sync_later.close()

    def _sync(self) -> None:
        waiting, self._waiting = self._waiting, {}
        by_root: dict[DirectoryState, list[Log]] = {}
        for log in waiting:
            if not log.abandoned:
                by_root.setdefault(log.root, []).append(log)
        if self._closed:
            return
        for root, logs in by_root.items():
            names = NamesSync(self._disk, [log.names_to_sync() for log in logs])
            tickets = [(log, log.unsynced_names(names)) for log in logs]
            self._sync_later.sync(names, partial(self._synced, root, tickets))

    def _synced(self, root: DirectoryState, tickets: list[tuple[Log, SyncTicket]], error: OSError | None) -> None:
        if self._closed:
            return
        if error is not None:
            root.failed(error)
            return
        for log, ticket in tickets:
            log.mark_synced(ticket)
