"""How Python's collector works here: on what is new, and never again on what stayed.

Reference counts free nearly all; the collector is for cycles. Python's own rule looks at everything that lives whenever a quarter came on top: 100 ms for
10,000 consumer groups, in which no request is answered. Here what lived through a full collection is frozen: it is still freed when nobody refers
to it, but it is not looked at any more. So a full collection looks at what came since the one before, which its thresholds bound.

A cycle that dies later than that stays. The code makes none that it does not break itself (connections, requests, groups, transactions:
`ottla/testing/garbage.py` for tests); for those that it makes by mistake everything is looked at once the memory has doubled, which bounds them.
"""

import gc
import logging
import sys
from time import perf_counter

logger = logging.getLogger(__name__)

THRESHOLDS = (700, 10, 4)
"""Python's own, but for the last: full collections come after some 40,000 new objects, and take 2 to 5 ms."""
GROWTH = 2
ALLOWANCE_BLOCKS = 1_000_000
"""Some 80 MB: a small node may more than double before everything is looked at."""


class Garbage:
    """The collector of this process. It is Python's and global, so there is to be one at a time."""

    def __init__(self, allowance_blocks: int = ALLOWANCE_BLOCKS) -> None:
        self._allowance_blocks = allowance_blocks
        self._blocks_max = 0
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """What there is now is kept. Called when all is imported."""
        gc.callbacks.append(_freeze_survivors)
        gc.set_threshold(*THRESHOLDS)
        self._collect_all()

    def stop(self) -> None:
        """As Python has it."""
        gc.callbacks.remove(_freeze_survivors)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def look(self) -> None:
        """Collects everything if so much came that much of it may be garbage. To be called now and then: it costs some 0.1 ms."""
        blocks = sys.getallocatedblocks()
        if blocks <= self._blocks_max:
            return
        began_s = perf_counter()
        found = self._collect_all()
        words = "Looked for garbage in all memory, which had grown to %d blocks: %d objects were, in %d ms"
        logger.info(words, blocks, found, round((perf_counter() - began_s) * 1000))

    def _collect_all(self) -> int:
        gc.unfreeze()
        found = gc.collect()
        gc.collect()  # of nothing: otherwise the next waits until a quarter of everything came on top
        self._blocks_max = GROWTH * sys.getallocatedblocks() + self._allowance_blocks
        return found


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == len(THRESHOLDS) - 1:
        gc.freeze()
