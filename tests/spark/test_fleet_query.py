"""The query of docs/pipeline.md says of a fleet's table what `ottla spark check` says."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import SparkSession

from ottla.pipeline.fleet.batches import record_batches
from ottla.pipeline.fleet.fleet import Fleet
from ottla.pipeline.fleet.judge import Judge
from ottla.pipeline.fleet.names import of_values
from ottla.pipeline.fleet.table_check import judge_files

FLEET = Fleet(records=3_000, vehicles=20)
DOCS = Path(__file__).parents[2] / "docs" / "pipeline.md"


def test_the_query_in_the_docs_counts_what_the_check_counts(spark: SparkSession, tmp_path: Path) -> None:
    batches = pa.Table.from_batches(record_batches(FLEET, "V", records=1_000))
    vehicle, number = of_values(batches["value"])
    chosen = np.delete(
        np.arange(3_000), [100, 200, 300]
    )  # three are lost (none of them a vehicle's last), two come twice
    chosen = np.concatenate([chosen, [50, 60]])
    places = np.arange(len(chosen))
    first, second = np.flatnonzero(vehicle[chosen] == 3)[5:7]
    places[[first, second]] = places[[second, first]]
    table = pa.table(
        {
            "vin": [f"5FLEET0000{each:07d}" for each in vehicle[chosen]],
            "seq": number[chosen],
            "partition": np.zeros(len(chosen), np.int32),
            "offset": places,
        }
    )
    path = tmp_path / "fleet.parquet"
    parquet.write_table(table, path)
    judge = Judge(FLEET, "V")
    judge_files(judge, [str(path)], str(tmp_path))
    found = judge.findings()
    query = re.search(r"```sql\n(SELECT sum\(n\).*?)```", DOCS.read_text(), re.DOTALL)
    assert query is not None
    spark.read.parquet(str(path)).createOrReplaceTempView("fleet")
    (row,) = spark.sql(query.group(1)).collect()
    assert (row["records"], row["doubled"], row["lost"]) == (found.records, found.doubled, found.lost) == (2_999, 2, 3)
    assert row["reordered"] == found.reordered + 2  # it counts what comes twice as out of order too
