"""Whether a batch comes again so late that brokers may have forgotten what was committed of it."""

import time
from contextlib import suppress

from ottla.pipeline.sinks.store import Store

LOOK_AGAIN_S = 600.0
"""Where a look takes more than a moment."""
_looked: dict[str, float] = {}


def planned_ago_s(checkpoint: str) -> float:
    """How long ago a query's newest batch was planned: a moment, unless it comes again after a stop. Also a moment where the checkpoint
    cannot be looked at, and where it is far away and this process looked just before."""
    now_s = time.time()
    if not checkpoint or now_s - _looked.get(checkpoint, -LOOK_AGAIN_S) < LOOK_AGAIN_S:
        return 0.0
    newest = (-1, now_s)
    with suppress(Exception):  # pyarrow does not know every place that Spark knows
        store = Store(checkpoint)
        for each in store.below("offsets"):
            name = each.path.rpartition("/")[2]
            newest = max(newest, (int(name), each.modified_s)) if name.isdecimal() else newest
        if not store.is_local and now_s - newest[1] < LOOK_AGAIN_S:
            _looked[checkpoint] = now_s
    return max(0.0, now_s - newest[1])
