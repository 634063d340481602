"""What it costs that a table in a folder is synced: batches of a thousand rows, in turn with syncs and without, p50 and p95 in ms.

python -m tests.benchmarks.table_commits --dir /var/tmp
"""

import argparse
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from ottla.pipeline.sinks.store import Store
from tests.unit.pipeline.sinks.tables import SINKS, Query, batch

ROWS, BATCHES, ROUNDS = 1_000, 40, 3


def commit_all(form: str, directory: str, *, syncs: bool) -> list[float]:
    """Milliseconds of each batch, rising."""
    batches = [
        batch([("t", 0, first + row, "v" * 50) for row in range(ROWS)]) for first in range(0, BATCHES * ROWS, ROWS)
    ]
    settle = Store.settle if syncs else lambda *_: None
    spent_ms = []
    with tempfile.TemporaryDirectory(dir=directory) as table, patch.object(Store, "settle", settle):
        query = Query(form, str(Path(table) / form))
        for number, rows in enumerate(batches):
            began_s = time.perf_counter()
            query.batch(number, rows)
            spent_ms.append((time.perf_counter() - began_s) * 1_000)
    return sorted(spent_ms)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.table_commits")
    parser.add_argument("--dir", default="/var/tmp", help="on the disk that is meant")
    directory = parser.parse_args().dir
    for _ in range(ROUNDS):
        for form in SINKS:
            for syncs in (False, True):
                spent_ms = commit_all(form, directory, syncs=syncs)
                p50, p95 = (spent_ms[int(len(spent_ms) * share)] for share in (0.5, 0.95))
                print(f"{form:8} {'synced' if syncs else 'without':8} {p50:6.1f} {p95:6.1f}")


if __name__ == "__main__":
    main()
