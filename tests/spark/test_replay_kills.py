"""A replay that is killed at any moment and started again has sent each row once, in order."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from ottla.pipeline.fleet.batches import partitions_of, record_batches
from ottla.pipeline.fleet.fleet import Fleet
from ottla.pipeline.fleet.judge import Judge
from ottla.pipeline.fleet.names import of_values
from ottla.pipeline.fleet.topic_check import judge_topic
from tests.spark.records import create

FLEET = Fleet(records=60_000, vehicles=500, offline=0.2)
PARTITIONS, CHUNK, KILLS, PATIENCE_S = 4, 2_000, 3, 240


def write_table(path: Path) -> None:
    """As `ingest` would have landed it, in one file."""
    table = pa.Table.from_batches(record_batches(FLEET, "V"))
    vehicle, _ = of_values(table["value"])
    partition = partitions_of(vehicle, PARTITIONS)
    offset = np.zeros(len(partition), np.int64)
    for number in range(PARTITIONS):
        offset[partition == number] = np.arange(np.count_nonzero(partition == number))
    path.mkdir()
    table = table.append_column("partition", pa.array(partition.astype(np.int32)))
    parquet.write_table(table.append_column("offset", pa.array(offset)), path / "rows.parquet")


def done(checkpoint: Path) -> int:
    try:
        return int((checkpoint / "replay.done").read_text() or 0)
    except FileNotFoundError:
        return 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_replay_that_is_killed_sends_each_row_once(seed: int, bootstrap: str, topic: str, tmp_path: Path) -> None:
    random, checkpoint = Random(seed), tmp_path / "checkpoint"
    topic = topic.replace("[", "-").replace("]", "")
    write_table(tmp_path / "table")
    create(bootstrap, topic, PARTITIONS)
    words = ["replay", "-b", bootstrap, "--table", str(tmp_path / "table"), "--topic", topic, "--chunk", str(CHUNK)]
    command = [sys.executable, "-m", "ottla.cli.main", "spark", *words, "--checkpoint", str(checkpoint)]
    for _ in range(KILLS):
        job = subprocess.Popen([*command, "--master", "local[2]"], start_new_session=True)
        enough, until = done(checkpoint) + random.randint(1, 6), time.monotonic() + PATIENCE_S
        while done(checkpoint) < enough and job.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(random.random() / 2)  # somewhere in a chunk
        os.killpg(job.pid, signal.SIGKILL)
        job.wait(30)
    subprocess.run([*command, "--master", "local[2]"], check=True, timeout=PATIENCE_S)
    judge = Judge(FLEET, "V")
    judge_topic(judge, bootstrap, topic)
    assert judge.findings().is_whole
