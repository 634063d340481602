"""What a follower makes of a leader's answer beside its records: where the log begins, and ends of transactions that it missed."""

from ottla.broker.replication.decisions.follower import Append
from ottla.broker.replication.decisions.healing import has_missed_an_end
from ottla.broker.replication.partition import Partition
from ottla.log.errors import DamagedLogError
from ottla.log.log import Log


def begin_at(log: Log, told: Append) -> None:
    """Where the leader's log begins this one does, as far as it knows what is committed."""
    if told.log_start_offset > log.log_start_offset:
        log.advance_log_start(min(told.log_start_offset, log.high_watermark))


def look_for_missed_end(partition: Partition, leaders_stable: int, told: Append) -> None:
    log = partition.log
    first_open = log.producers.first_open_offset
    if first_open is not None and has_missed_an_end(
        first_open,
        log.log_end_offset,
        leaders_stable,
        told.high_watermark,
        told.log_start_offset,
        is_in_isr=partition.is_in_isr,
    ):
        reason = "of the transaction that begins there the leader's log has nothing any more, nor how it ended"
        partition.services.on_damage(partition, DamagedLogError(log.directory, 0, first_open, reason))
