"""A fleet's telemetry through the pipeline: run by `make spark-fleet`, which ends by itself.

Three nodes; `ottla spark generate` sends ten million records (or --records), `ottla spark ingest` lands them in a Delta table with the
values' own columns, `ottla spark check` finds each of them in the topic and in the table, once and in order. Prints what each step took.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.spark_flights import job, three_nodes

HOME = Path("ottla-data/spark-fleet")
TABLE = HOME / "lake" / "fleet"
VALUE_BYTES = 145.4
"""Of a record, on average; its key has 17."""
KEY_BYTES = 17
SCHEMA = "vin string, seq long, created_at long, speed double, soc double, odometer long, lat double, lon double, gear string"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    records = parser.parse_args().records
    fleet = ("--records", str(records), "--kind", "V")
    typed = ("--value-format", "json", "--value-schema", SCHEMA)
    steps = {
        "generate": ("generate", *fleet, "--replication-factor", "3"),
        "ingest": (
            "ingest",
            "--topics",
            "fleet_V",
            "--table",
            str(TABLE),
            *typed,
            "--max-offsets-per-trigger",
            "5000000",
        ),
        "check the topic": ("check", *fleet),
        "check the table": ("check", *fleet, "--table", str(TABLE)),
    }
    took: dict[str, float] = {}
    with three_nodes(HOME) as bootstrap:
        for name, words in steps.items():
            began = time.monotonic()
            job(bootstrap, *words)
            took[name] = time.monotonic() - began
    shutil.rmtree(HOME / "cluster")
    show(records, took)
    return 0


def show(records: int, took: dict[str, float]) -> None:
    """Wall time, the start of Python and of Spark in it."""
    size = records * (VALUE_BYTES + KEY_BYTES)
    table = Table("", "records", "seconds", "records/s", "MB/s", title="the fleet", title_justify="left")
    for name, seconds in took.items():
        table.add_row(
            name, f"{records:,}", f"{seconds:.1f}", f"{records / seconds:,.0f}", f"{size / seconds / 1e6:.0f}"
        )
    Console(highlight=False, width=100).print(table)


if __name__ == "__main__":
    sys.exit(main())
