"""Whether a log may lack offsets. Compaction makes gaps, and whoever replicates a compacted log inherits them.

Where none are expected a missing offset is damage, and reading it an error rather than a silent jump. That a log has gaps
outlives its settings (a topic may change from compact to delete), so an empty marker file says it.
"""

from ottla.log.batch import BatchHeader
from ottla.log.durable_log import DurableLog

MARKER = "ottla.gaps"


def allow(log: DurableLog) -> None:
    """Lets the log have gaps, from now on and for good. OSError passes through."""
    if log.gaps_marked:
        return
    log.disk.open(f"{log.directory}/{MARKER}", create=True).close()
    log.gaps_allowed = log.gaps_marked = True
    log.names_changed()


def allow_where_seen(log: DurableLog, batches: list[tuple[int, BatchHeader]]) -> None:
    """Marks the log when the batches, about to be appended, leave offsets out."""
    expected = log.log_end_offset
    for _, header in batches:
        if header.base_offset > expected:  # less only where an empty log begins within a batch
            allow(log)
            return
        expected = header.base_offset + header.last_offset_delta + 1
