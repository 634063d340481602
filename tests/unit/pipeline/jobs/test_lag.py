"""How far a query is behind, by its checkpoint; it need not run."""

import json
import os
from pathlib import Path

import pytest

from ottla.cli import leader_requests
from ottla.cli.failures import CommandError
from ottla.cli.leader_requests import Place
from ottla.pipeline.jobs.lag_rows import ANEW, standing
from ottla.runtime.identifiers import id_to_text
from tests.unit.cli.fake_groups import NOW_MS, FakeCluster, id_of

NOW_S = NOW_MS / 1000


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Its records are a second apart, and the last was written now."""
    cluster = FakeCluster()
    cluster.ends = {Place("t", 0): (0, 1000), Place("t", 1): (0, 500)}
    monkeypatch.setattr(leader_requests, "Client", cluster.client)
    return cluster


def write(directory: Path, batch: int, ago_s: float, *offsets: int, is_done: bool = True) -> None:
    about = json.dumps({"batchTimestampMs": NOW_MS - round(ago_s * 1000)})
    text = json.dumps({"t": {str(number): offset for number, offset in enumerate(offsets)}})
    for folder, content in (("offsets", f"v1\n{about}\n{text}"), ("commits", "v1")):
        if folder == "offsets" or is_done:
            path = directory / folder / str(batch)
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
            os.utime(path, (NOW_S - ago_s, NOW_S - ago_s))


def test_lag_is_told_in_records_in_seconds_and_with_when_it_is_over(cluster: FakeCluster, tmp_path: Path) -> None:
    write(tmp_path, 0, 30, 100, 500)
    write(tmp_path, 1, 20, 500, 500)
    write(tmp_path, 2, 10, 900, 500)
    found = standing(str(tmp_path), "b:1", NOW_S)
    first, second = found.rows
    assert (first["committed"], first["end"], first["lag"], first["lag seconds"]) == (900, 1000, 100, 99.0)
    assert (first["read per second"], first["caught up"]) == (40.0, "in 2.6 s")
    assert (second["lag"], second["caught up"]) == (0, "now")
    assert found.summary == (
        f"{tmp_path}: batch 2 was done 10 s ago. 100 records unread, the oldest 99 s old; caught up in 2.6 s."
    )


def test_a_batch_that_is_not_done_does_not_count(cluster: FakeCluster, tmp_path: Path) -> None:
    write(tmp_path, 0, 30, 100, 500)
    write(tmp_path, 1, 4, 1000, 500, is_done=False)
    found = standing(str(tmp_path), "b:1", NOW_S)
    assert found.offsets == {("t", 0): 100, ("t", 1): 500}
    assert "batch 0 was done 30 s ago, batch 1 was begun 4.0 s ago." in found.summary


def test_a_dead_job_has_stopped_reading(cluster: FakeCluster, tmp_path: Path) -> None:
    write(tmp_path, 0, 620, 100, 500)
    write(tmp_path, 1, 600, 500, 500)
    found = standing(str(tmp_path), "b:1", NOW_S)
    assert [row["caught up"] for row in found.rows] == ["stopped", "now"]
    assert found.summary.endswith("; nothing was read lately.")


def test_a_job_with_long_batches_is_not_taken_for_dead(cluster: FakeCluster, tmp_path: Path) -> None:
    write(tmp_path, 0, 700, 100, 500)
    write(tmp_path, 1, 400, 500, 500)
    (first, _) = standing(str(tmp_path), "b:1", NOW_S).rows
    assert first["read per second"] == pytest.approx(400 / 300)


def test_one_batch_gives_no_rate(cluster: FakeCluster, tmp_path: Path) -> None:
    write(tmp_path, 0, 5, 100, 500)
    (first, _) = standing(str(tmp_path), "b:1", NOW_S).rows
    assert (first["lag"], first["caught up"]) == (900, None)


def test_a_topic_that_is_gone_is_shown(cluster: FakeCluster, tmp_path: Path) -> None:
    write(tmp_path, 0, 5, 100, 500)
    cluster.ends = {Place("t", 0): (0, 100)}
    assert [row["note"] for row in standing(str(tmp_path), "b:1", NOW_S).rows] == [None, "the topic is gone"]


def test_a_topic_made_again_is_shown_by_offsets_beyond_its_end(cluster: FakeCluster, tmp_path: Path) -> None:
    write(tmp_path, 0, 5, 1700, 500)
    (first, _) = standing(str(tmp_path), "b:1", NOW_S).rows
    assert first["note"] == "committed 700 records beyond the end"


@pytest.mark.parametrize("ends", [(0, 1000), (0, 50)])
def test_nothing_is_read_of_a_topic_that_has_another_id_now(
    cluster: FakeCluster, tmp_path: Path, ends: tuple[int, int]
) -> None:
    cluster.ends = {Place("t", 0): ends, Place("u", 0): (0, 7)}
    write(tmp_path, 0, 5, 100)
    offsets = {
        "t": {"0": 100},
        f"t:{id_to_text(bytes(15) + b'1')}": {},
        "u": {"0": 7},
        f"u:{id_to_text(id_of('u'))}": {},
    }
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(offsets)}")
    found = standing(str(tmp_path), "b:1", NOW_S)
    assert [(row["lag"], row["note"]) for row in found.rows] == [(ends[1], ANEW), (0, None)]
    assert found.offsets == {("u", 0): 7}


def test_a_directory_without_a_query_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no query has been here"):
        standing(str(tmp_path), "b:1")


def test_a_query_in_its_first_batch_is_said(tmp_path: Path) -> None:
    write(tmp_path, 0, 5, 100, is_done=False)
    with pytest.raises(CommandError, match="the first batch is not done yet"):
        standing(str(tmp_path), "b:1")
