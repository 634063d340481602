"""What coordinators tell the log of a node: so many facts a second at most, lest a storm of members fills the disk."""

import logging

A_SECOND = 20
CHARACTERS_MAX = 2_000
"""Names are what clients chose: Kafka's protocol lets one have 32 KB."""

logger = logging.getLogger(__name__)


class Notes:
    """Of all shards of a node."""

    def __init__(self) -> None:
        self._second = -1
        self._told = self._left_out = 0

    def tell(self, now_ms: int, fact: str) -> None:
        """``now_ms`` by a clock that never goes back."""
        if now_ms // 1_000 != self._second:
            if self._left_out:
                logger.info("%d facts of groups and transactions are left out here: they were too many", self._left_out)
            self._second, self._told, self._left_out = now_ms // 1_000, 0, 0
        self._told += 1
        if self._told > A_SECOND:
            self._left_out += 1
        else:
            logger.info("%s", fact if len(fact) <= CHARACTERS_MAX else fact[: CHARACTERS_MAX - 1] + "…")
