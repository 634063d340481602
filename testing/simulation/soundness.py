"""Whether a log is, bit for bit, what was written."""

from ottla.log.errors import DamagedLogError
from ottla.log.log import Log
from ottla.log.segments.scrub import NOTHING
from ottla.runtime.errors import KafkaError

PIECE_BYTES = 1 << 20


def is_sound(log: Log) -> bool:
    """Whether every batch and index entry is what was written."""
    offset = 0
    try:
        while (scrub := log.scrub_from(offset)) is not None:
            over = False
            while not over:
                over = scrub.step(PIECE_BYTES)
            if scrub.suspect != NOTHING or scrub.index_is_wrong:
                return False
            offset = scrub.following
    except DamagedLogError:
        return False
    except (KafkaError, OSError):
        return True  # it is being closed, or cut
    return True
