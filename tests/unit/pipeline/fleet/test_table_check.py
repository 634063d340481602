"""A table of a fleet's records is judged from its files, whichever columns tell what they are and in which order the files come."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from ottla.pipeline.fleet.batches import record_batches
from ottla.pipeline.fleet.fleet import Fleet
from ottla.pipeline.fleet.judge import Findings, Judge
from ottla.pipeline.fleet.names import of_values
from ottla.pipeline.fleet.table_check import NoFleetTableError, judge_files

FLEET = Fleet(records=5_000, vehicles=20)


def records() -> pa.Table:
    table = pa.Table.from_batches(record_batches(FLEET, "V", records=1_000))
    table = table.append_column("partition", pa.array(np.zeros(table.num_rows, np.int32)))
    return table.append_column("offset", pa.array(np.arange(table.num_rows)))


def judged(directory: Path, table: pa.Table, pieces: int = 5) -> tuple[bool, Findings]:
    rows = -(-table.num_rows // pieces)
    files = []
    for number in range(pieces):
        path = directory / f"day={number}" / f"{pieces - number}.parquet"
        path.parent.mkdir()
        parquet.write_table(table.slice(number * rows, rows), path)
        files.append(str(path))
    judge = Judge(FLEET, "V")
    return judge_files(judge, files[::-1], str(directory)), judge.findings()


def test_rows_are_taken_in_the_order_of_their_offsets(tmp_path: Path) -> None:
    has_order, found = judged(tmp_path, records())
    assert has_order
    assert found.is_whole


def test_columns_tell_what_values_told(tmp_path: Path) -> None:
    table = records()
    vehicles, numbers = of_values(table["value"])
    vins = pa.array([f"5FLEET0000{each:07d}" for each in vehicles])
    table = table.drop_columns(["value", "key"]).append_column("vin", vins).append_column("seq", pa.array(numbers))
    table = pa.concat_tables([table.slice(10), table.slice(100, 3)])
    _, found = judged(tmp_path, table)
    assert (found.lost, found.doubled, found.reordered, found.foreign) == (10, 3, 0, 0)


def test_offsets_of_another_order_show(tmp_path: Path) -> None:
    table = records()
    offsets = np.arange(table.num_rows)
    vehicles, _ = of_values(table["value"])
    first, second = np.flatnonzero(vehicles == 3)[:2]
    offsets[[first, second]] = offsets[[second, first]]
    _, found = judged(tmp_path, table.set_column(table.schema.get_field_index("offset"), "offset", pa.array(offsets)))
    assert (found.lost, found.doubled, found.reordered, found.foreign) == (0, 0, 1, 0)


def test_without_offsets_nothing_is_said_about_order(tmp_path: Path) -> None:
    turned = records().drop_columns(["offset"]).take(np.arange(5_000)[::-1])
    has_order, found = judged(tmp_path, turned, pieces=1)
    assert not has_order
    assert found.is_whole


def test_another_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoFleetTableError, match="neither vin and seq, nor value"):
        judged(tmp_path, pa.table({"x": [1]}), pieces=1)


def test_an_empty_table_has_lost_everything() -> None:
    judge = Judge(FLEET, "V")
    assert judge_files(judge, [], "nowhere")
    assert judge.findings().lost == 5_000
