"""An operation on a log's files that failed half-way, for want of room or descriptors: the log is read anew, as after a crash.

At every point of an operation its files are such that a start finds a sound log in them. So where one ends too early, what is in
memory is thrown away and made again from the files: no operation needs a way back of its own.
"""

from ottla.log import recovery
from ottla.log.durable_log import DurableLog
from ottla.log.errors import StorageError


def ended_half_way(log: DurableLog, error: OSError) -> StorageError:
    """The error to raise: something was changed, and then ``error`` came. The log is read anew, now or when it is used next."""
    failure = log.root.failed(error)
    if not log.half_done and log.root.failure is None:
        log.half_done = True
        reopen(log)
    return failure


def refuse(log: DurableLog) -> None:
    """Refuses a log that is `half_done`, and tries to mend it.

    Raises StorageError in any case: the log may end elsewhere than its user knew.
    """
    reopen(log)
    raise StorageError(f"{log.partition}: an operation ended half-way; the log is read anew")


def reopen(log: DurableLog) -> bool:
    """Whether the log could be read; else it stays `half_done`. One that is gone is not looked for: its name may be another's."""
    if log.abandoned:
        return False
    start, end, high_watermark = log.log_start_offset, log.log_end_offset, log.high_watermark
    epochs = log.epochs.entries()
    log.let_go()
    try:
        recovery.recover(
            log,
            min(log.recovery_point, log.root.saved_recovery_point(log.key)),
            start,
            0,
            clean=False,
            topic_id=log.topic_id,
            stable_offset=0,
            high_watermark=high_watermark,
        )
    except (OSError, StorageError) as error:
        if isinstance(error, OSError):
            log.root.failed(error)
        log.log_start_offset, log.log_end_offset, log.high_watermark = start, end, high_watermark
        log.adopt_epochs(epochs)
        return False
    log.half_done = False
    _take_over(log, epochs, end)
    log.truncated()
    return True


def _take_over(log: DurableLog, epochs: "tuple[tuple[int, int], ...]", end: int) -> None:
    """What was in memory only: epochs that began and had no records yet, segments that wait for their sync."""
    log.adopt_epochs(epochs)
    log.epochs.truncate_from_start(log.log_start_offset)
    if log.log_end_offset < end:
        log.epochs.truncate_from_end(log.log_end_offset)
    if log.recovery_point < log.active.base_offset:
        log.root.rolled[log] = None
