"""An audit finds every damage that a disk, a hand or a bug may do to a log, and nothing in what is sound."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from ottla.log.batch import headers
from ottla.log.records import Record, encode_batch, reseal
from ottla.pipeline.audit import findings as findings_module
from ottla.pipeline.audit.audit import audit
from ottla.pipeline.audit.findings import Finding, Report
from ottla.pipeline.jobs.audit import audit as command
from tests.unit.pipeline.directories.conftest import replaced_leader

NewNode = Callable[[], Any]
SEGMENT = {"segment_bytes": 2000, "index_interval_bytes": 300}


def kinds(report: Report) -> list[tuple[str, str, int]]:
    return [(finding.severity, finding.kind, finding.offset) for finding in report.findings]


def faults(report: Report) -> list[tuple[str, int]]:
    """Without notes: what comes behind a gap has some of its own."""
    return sorted((finding.kind, finding.offset) for finding in report.findings if finding.severity == "fault")


def filled(node: Any, batches: int = 60) -> Any:
    node.log(**SEGMENT)
    for number in range(batches):
        node.append(3, producer_id=7, producer_epoch=0, base_sequence=3 * number)
    node.commit()
    return node


def sound(node: Any) -> Path:
    path: Path = filled(node).stop().path
    return path


def batch_at(path: Path, number: int) -> tuple[int, int]:
    """Where the batch of this number begins, and how long it is."""
    at, header = list(headers(path.read_bytes()))[number]
    return at, header.size_bytes


def damage(path: Path, at: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def stamped(path: Path, number: int, offset: int) -> None:
    damage(path, batch_at(path, number)[0], offset.to_bytes(8, "big"))


def replicas(new_node: NewNode, count: int = 3) -> list[Any]:
    nodes = [new_node() for _ in range(count)]
    filled(nodes[0])
    for node in nodes[1:]:
        node.log(**SEGMENT)
        node.follow(nodes[0])
    for node in nodes:
        node.stop()
    return nodes


def test_a_sound_log_is_counted_and_nothing_is_found(new_node: NewNode) -> None:
    path = sound(new_node())

    report = audit([str(path)])

    assert report.findings == ()
    (standing,) = report.replicas
    assert (standing.topic, standing.partition, standing.node) == ("flights", 0, "1")
    assert (standing.start_offset, standing.end_offset, standing.high_watermark) == (0, 180, 180)
    assert (standing.batches, standing.records, standing.control_batches) == (60, 180, 0)
    assert standing.bytes == sum(each.stat().st_size for each in path.rglob("*.log"))


def test_replicas_that_agree_are_found_to(new_node: NewNode, tmp_path: Path) -> None:
    replicas(new_node)

    report = audit([str(tmp_path)], processes=1)

    assert report.findings == ()
    assert [standing.node for standing in report.replicas] == ["1", "2", "3"]


def test_transactions_and_their_markers_are_sound(new_node: NewNode) -> None:
    node = new_node()
    node.append(2, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    node.end_transaction(5, committed=False)
    node.append(2, producer_id=5, producer_epoch=0, base_sequence=2, transactional=True)
    node.end_transaction(5, committed=True)
    node.append(1, producer_id=5, producer_epoch=1, base_sequence=0)
    node.commit()

    report = audit([str(node.stop().path)])

    assert report.findings == ()
    assert (report.replicas[0].records, report.replicas[0].control_batches) == (5, 2)


def test_no_flipped_bit_behind_what_lies_outside_the_crc_stays_hidden(new_node: NewNode) -> None:
    node = filled(new_node(), batches=4).stop()
    segment = node.segment()
    before = segment.read_bytes()
    at, size = batch_at(segment, 2)
    for place in range(17, size):
        damage(segment, at + place, bytes([before[at + place] ^ 1 << place % 8]))
        assert ("crc", 6) in faults(audit([str(node.path)])), place
        segment.write_bytes(before)


def test_a_crc_fault_says_where_it_is(new_node: NewNode) -> None:
    node = filled(new_node()).stop()
    at, _ = batch_at(node.segment(1), 1)
    damage(node.segment(1), at + 70, b"\xff")

    (finding,) = audit([str(node.path)]).findings

    base = int(node.segment(1).stem) + 3
    assert finding[:8] == ("fault", "crc", "flights", 0, "1", str(node.segment(1)), at, base)


@pytest.mark.parametrize("offset", [5, 0, 2**40, 2**63 - 1, 7, 9])
def test_a_base_offset_that_was_changed_is_seen(new_node: NewNode, offset: int) -> None:
    """It lies outside the CRC."""
    node = filled(new_node()).stop()
    stamped(node.segment(0), 2, offset)

    report = audit([str(node.path)])

    assert report.faults
    assert len(report.findings) <= 3
    assert report.replicas[0].end_offset == 180


def test_a_length_that_was_changed_costs_what_the_index_does_not_know(new_node: NewNode) -> None:
    node = filled(new_node()).stop()
    at, _ = batch_at(node.segment(0), 2)
    damage(node.segment(0), at + 8, bytes(4))

    report = audit([str(node.path)])

    assert faults(report) == [("gap", 6), ("unreadable", 6)]
    assert report.replicas[0].end_offset == 180
    assert report.replicas[0].batches > 55


def test_a_segment_that_is_gone_is_a_gap(new_node: NewNode) -> None:
    node = filled(new_node()).stop()
    second, third = int(node.segment(1).stem), int(node.segment(2).stem)
    node.segment(1).unlink()

    (finding,) = [each for each in audit([str(node.path)]).findings if each.severity == "fault"]

    assert (finding.kind, finding.offset) == ("gap", second)
    assert finding.message == f"offsets {second} to {third - 1} are missing"


def test_a_first_segment_that_is_gone_is_a_gap(new_node: NewNode) -> None:
    node = filled(new_node()).stop()
    (node.path / "log-start-offset-checkpoint").write_text("0\n1\nflights 0 0\n")
    node.segment(0).unlink()

    assert ("fault", "gap", 0) in kinds(audit([str(node.path)]))


def test_what_retention_took_is_no_gap(new_node: NewNode) -> None:
    node = filled(new_node()).stop()
    (node.path / "log-start-offset-checkpoint").write_text(f"0\n1\nflights 0 {int(node.segment(1).stem)}\n")
    node.segment(0).unlink()

    assert audit([str(node.path)]).findings == ()


def test_a_tail_that_was_cut_below_the_high_watermark_is_a_fault(new_node: NewNode) -> None:
    node = filled(new_node()).stop()
    os.truncate(node.segment(), node.segment().stat().st_size - 3)

    assert sorted(kinds(audit([str(node.path)]))) == [("fault", "short", 177), ("note", "torn-tail", 177)]


def test_a_tail_that_was_cut_in_the_middle_of_the_log_is_a_fault(new_node: NewNode) -> None:
    node = filled(new_node()).stop()
    os.truncate(node.segment(0), node.segment(0).stat().st_size - 3)
    end = int(node.segment(1).stem) - 3

    assert faults(audit([str(node.path)])) == [("gap", end), ("unreadable", end)]


def test_a_batch_written_twice_is_an_overlap(new_node: NewNode) -> None:
    node = filled(new_node()).stop()
    at, size = batch_at(node.segment(), -1)
    data = node.segment().read_bytes()
    node.segment().write_bytes(data + data[at : at + size])

    assert kinds(audit([str(node.path)])) == [("fault", "regression", 177)]


def test_a_record_that_a_producer_wrote_twice_is_seen(new_node: NewNode) -> None:
    node = new_node()
    for sequence in (0, 3):
        node.append(3, producer_id=7, producer_epoch=0, base_sequence=sequence)
    node.stop()
    repeated = encode_batch(
        [Record(6 + number, 1, b"k", b"v") for number in range(3)],
        base_offset=6,
        leader_epoch=0,
        producer_id=7,
        producer_epoch=0,
        base_sequence=3,
    )
    node.segment().write_bytes(node.segment().read_bytes() + repeated)

    (finding,) = audit([str(node.path)]).findings

    assert (finding.kind, finding.offset) == ("duplicate", 6)
    assert finding.message == "producer 7, epoch 0: sequence 3 again, 6 was next"


def test_an_epoch_that_goes_back_is_seen(new_node: NewNode) -> None:
    node = new_node()
    for epoch in (1, 4, 5):
        node.append(3, epoch=epoch)
    node.stop()
    at, _ = batch_at(node.segment(), 1)
    damage(node.segment(), at + 12, (0).to_bytes(4, "big"))

    assert kinds(audit([str(node.path)])) == [("fault", "epoch", 3)]


def diverge(path: Path, number: int) -> None:
    """Changes a record of the batch, CRC and all."""
    data = bytearray(path.read_bytes())
    at, size = batch_at(path, number)
    batch = data[at : at + size]
    batch[-5] ^= 1
    reseal(batch)
    data[at : at + size] = batch
    path.write_bytes(data)


def test_replicas_that_differ_below_the_high_watermark_are_a_fault(new_node: NewNode, tmp_path: Path) -> None:
    nodes = replicas(new_node)
    diverge(nodes[1].segment(0), 2)
    diverge(nodes[1].segment(2), 0)

    (finding,) = audit([str(tmp_path)]).findings

    assert (finding.severity, finding.kind, finding.node, finding.offset) == ("fault", "divergence", "2", 6)
    assert finding.message.startswith("2 batches differ from node 1, the first: offsets 6 to 8, CRC ")


def test_another_leader_epoch_is_a_divergence(new_node: NewNode, tmp_path: Path) -> None:
    nodes = replicas(new_node, 2)
    at, _ = batch_at(nodes[1].segment(0), 0)
    damage(nodes[1].segment(0), at + 12, (-1).to_bytes(4, "big", signed=True))

    assert kinds(audit([str(tmp_path)])) == [("fault", "divergence", 0)]


def test_a_segment_that_one_replica_lost_is_missing(new_node: NewNode, tmp_path: Path) -> None:
    nodes = replicas(new_node, 2)
    base = int(nodes[1].segment(1).stem)
    nodes[1].segment(1).unlink()

    assert faults(audit([str(tmp_path)])) == [("gap", base), ("missing", base)]


def test_a_replica_that_is_behind_is_noted(new_node: NewNode, tmp_path: Path) -> None:
    leader, follower = new_node(), new_node()
    leader.append(3)
    follower.follow(leader)
    leader.append(3)
    leader.commit()
    leader.stop()
    follower.stop()

    assert kinds(audit([str(tmp_path)])) == [("note", "behind", 3)]


def test_a_replica_that_has_no_file_yet_is_behind(new_node: NewNode, tmp_path: Path) -> None:
    leader, follower = new_node(), new_node()
    leader.append(3)
    leader.commit()
    follower.log()
    leader.stop()
    follower.stop()

    report = audit([str(tmp_path)])

    assert kinds(report) == [("note", "behind", 0)]
    assert [(standing.node, standing.end_offset) for standing in report.replicas] == [("1", 3), ("2", 0)]


def test_a_replica_that_lost_all_its_files_is_short(new_node: NewNode, tmp_path: Path) -> None:
    one, _ = replicas(new_node, 2)
    for path in one.directory().iterdir():
        if path.name != "partition.metadata":
            path.unlink()

    assert ("short", 0) in faults(audit([str(tmp_path)]))


def test_who_never_heard_that_anything_is_committed_may_differ(new_node: NewNode, tmp_path: Path) -> None:
    old, new = new_node(), new_node()
    old.append(3)
    new.append(2, epoch=1)
    new.commit()
    old.stop()
    new.stop()

    assert {severity for severity, *_ in kinds(audit([str(tmp_path)]))} == {"note"}


def test_what_a_replaced_leader_wrote_is_noted(new_node: NewNode, tmp_path: Path) -> None:
    """It cuts that when it starts: it has not heard that others were committed there."""
    old, new = replaced_leader(new_node)

    assert kinds(audit([str(old.path), str(new.path)])) == [("note", "unsettled", 3)]


def test_what_no_one_committed_may_differ(new_node: NewNode, tmp_path: Path) -> None:
    nodes = [new_node(), new_node()]
    for number, node in enumerate(nodes):
        node.append(3)
        node.append(3, size=20 + number)
        node.commit(3)
        node.stop()

    assert audit([str(tmp_path)]).findings == ()


def test_gaps_of_compaction_are_legal_and_replicas_may_be_compacted_by_themselves(
    new_node: NewNode, tmp_path: Path
) -> None:
    leader, follower = new_node(), new_node()
    for node in (leader, follower):
        node.log(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, **SEGMENT)
    for number in range(60):
        leader.append(3 + number % 2)
    leader.commit()
    follower.follow(leader)
    leader.compact()
    for node in (leader, follower):
        node.stop()

    report = audit([str(tmp_path)])

    assert report.findings == ()
    assert report.replicas[0].records < report.replicas[1].records


def test_a_topic_made_anew_is_not_compared_with_the_old_one(new_node: NewNode, tmp_path: Path) -> None:
    old, new = new_node(), new_node()
    for node, identity, size in ((old, 1, 20), (new, 2, 30)):
        log = node.log(topic_id=bytes(15) + bytes([identity]))
        node.append(3, size=size)
        node.commit(log=log)
        node.stop()

    assert kinds(audit([str(tmp_path)])) == [("note", "topic-id", -1)]


def test_a_disk_that_lies_often_does_not_fill_the_report(new_node: NewNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings_module, "FINDINGS_MAX", 5)
    node = filled(new_node()).stop()
    data = bytearray(node.segment(0).read_bytes())
    for at, header in headers(data):
        data[at + header.size_bytes - 1] ^= 1
    node.segment(0).write_bytes(data)
    number = len(list(headers(data)))

    found: tuple[Finding, ...] = audit([str(node.path)]).findings

    assert len(found) == 6
    assert f"and {number - 5} more of these in this replica" in {finding.message for finding in found}


def test_the_command_tells_faults_by_its_exit_code(new_node: NewNode, tmp_path: Path) -> None:
    node = filled(new_node()).stop()
    files = [str(tmp_path / "findings.parquet"), str(tmp_path / "replicas.arrow")]
    words = [str(node.path), "--processes", "1", "--findings-file", files[0], "--replicas-file", files[1]]

    good = CliRunner().invoke(command, [*words, "-o", "json"])
    damage(node.segment(0), 100, b"\xff")
    bad = CliRunner().invoke(command, [*words, "-o", "json"])
    standing = CliRunner().invoke(command, [*words, "--replicas"])

    assert (good.exit_code, json.loads(good.stdout)) == (0, [])
    assert (bad.exit_code, [row["kind"] for row in json.loads(bad.stdout)]) == (1, ["crc"])
    assert "1 faults and 0 notes in 1 replicas: 60 batches" in bad.stderr
    assert "180" in standing.stdout
    assert pq.read_table(files[0])["kind"].to_pylist() == ["crc"]
    with pa.OSFile(files[1]) as source:
        assert pa.ipc.open_file(source).read_all()["records"].to_pylist() == [180]


def test_processes_find_what_one_finds(new_node: NewNode, tmp_path: Path) -> None:
    node = new_node()
    for partition in range(3):
        node.append(2, log=node.log(partition=partition))
        node.commit(log=node.log(partition=partition))
    node.stop()
    damage(node.segment(0, partition=1), 70, b"\xff")

    report = audit([str(tmp_path)], processes=2)

    assert report == audit([str(tmp_path)])
    assert [finding.partition for finding in report.findings] == [1]
