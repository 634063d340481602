"""Whether a batch comes again so late that brokers may have forgotten what was committed of it."""

import time
from contextlib import suppress

from ottla.pipeline.sinks.store import Store

LOOK_AGAIN_S = 600.0
_looked: dict[str, float] = {}


def planned_ago_s(checkpoint: str) -> float:
    """How long ago a query's newest batch was planned: a moment, unless it comes again after a stop. Where the checkpoint cannot be
    looked at, or was just before by this process, a moment."""
    now_s = time.time()
    if not checkpoint or now_s - _looked.get(checkpoint, -LOOK_AGAIN_S) < LOOK_AGAIN_S:
        return 0.0
    newest = (-1, now_s)
    with suppress(Exception):  # pyarrow does not know every place that Spark knows
        for each in Store(checkpoint).below("offsets"):
            name = each.path.rpartition("/")[2]
            newest = max(newest, (int(name), each.modified_s)) if name.isdecimal() else newest
    ago_s = max(0.0, now_s - newest[1])
    if ago_s < LOOK_AGAIN_S:
        _looked[checkpoint] = now_s
    return ago_s
