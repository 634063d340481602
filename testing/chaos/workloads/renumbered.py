"""When librdkafka sends again, under the next producer epoch, what was written already: by its log, for it tells nobody else.

With several requests under way, one is refused (NOT_ENOUGH_REPLICAS, say) and the next one is taken up a moment later, when the cause
is gone: its sequence leaves a gap, and it must be answered OUT_OF_ORDER_SEQUENCE_NUMBER, by Kafka as by Ottla. librdkafka then takes a
new epoch for all its partitions and numbers everything anew that is not acknowledged, also what was written and whose answer
was lost. A gap behind a request that may have been written is no such case: whoever answers so has forgotten a batch.
"""

import logging
import re
from collections.abc import Callable
from typing import Any

SETTINGS: dict[str, Any] = {"debug": "eos", "log_level": 7}
_REFUSED = re.compile(
    r"skipped sequence numbers .* caused by previous failed request \(\w+, actions [\w,]*MsgNotPersisted"
)


def says_so(line: str) -> bool:
    """Whether this line of librdkafka's says that it takes a new epoch because a request behind a refused one left a gap."""
    return _REFUSED.search(line) is not None


class Ear(logging.Handler):
    """Hears a producer's log, which comes while the producer is polled: before what came of the records that are sent again."""

    def __init__(self, renumbers: Callable[[], None]) -> None:
        super().__init__()
        self._renumbers = renumbers

    def emit(self, record: logging.LogRecord) -> None:
        if says_so(record.getMessage()):
            self._renumbers()


def logger(renumbers: Callable[[], None]) -> logging.Logger:
    """To be given to a producer with `SETTINGS`."""
    made = logging.Logger("librdkafka")
    made.addHandler(Ear(renumbers))
    return made
