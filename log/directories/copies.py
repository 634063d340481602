"""Which of several logs of one partition counts: a log directory that was lost may come back after its replicas were made anew.

Raft's argument holds for them too: of two logs that followed the same leaders the one with the later last epoch, or the later
end in the same epoch, has all that was ever committed in the other. So that one counts. The metadata alone would not do: a replica
may be back in sync before the controller heard where it lies now. Between equals it decides.
"""

from collections.abc import Sequence

from ottla.log.log import Log


def furthest(logs: Sequence[Log], directory_id: bytes | None) -> Log | None:
    """``directory_id``: where the metadata says that the partition lies."""
    if not logs:
        return None
    return max(logs, key=lambda log: (log.last_epoch, log.log_end_offset, log.root.directory_id == directory_id))
