"""What every task of Spark's does first in its worker's process."""

import gc

_spared: list[bool] = []


def spare_the_collector() -> None:
    """Spark's worker collects garbage after each task, and all that pyspark and pyarrow loaded makes that long (30 ms): it is set
    aside once in a process."""
    if not _spared:
        gc.collect()
        gc.freeze()
        _spared.append(True)
