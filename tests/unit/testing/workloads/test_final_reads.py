"""A replica's files as the checker is told of them."""

from pathlib import Path

from ottla.log.records import Record, encode_batch
from ottla.testing.chaos.workloads.clients import Counted
from ottla.testing.chaos.workloads.final_reads import of_logs, read_replica
from ottla.testing.checker import Isolation, Read, Recorder
from ottla.testing.checker.history import read


def batch(first: int, *values: str) -> bytes:
    return bytes(encode_batch([Record(first + place, 0, None, each.encode()) for place, each in enumerate(values)]))


def replica(home: Path, node: int, *batches: bytes, first: int = 0) -> Path:
    directory = home / str(node) / "t-0"
    directory.mkdir(parents=True)
    (directory / f"{first:020d}.log").write_bytes(b"".join(batches))
    return directory


def test_a_replica_is_read_from_its_first_segment_to_its_end(tmp_path: Path) -> None:
    directory = replica(tmp_path, 1, batch(5, "a", "b"), batch(7, "c"), first=5)
    (directory / f"{8:020d}.log").write_bytes(batch(8, "d"))
    (directory / "other.log").write_bytes(b"?")
    assert read_replica(directory) == (5, 9, [(5, "a"), (6, "b"), (7, "c"), (8, "d")])


def test_each_replica_that_a_node_has_is_in_the_history(tmp_path: Path) -> None:
    replica(tmp_path, 1, batch(0, "a"))
    replica(tmp_path, 2)
    directories = {node: [tmp_path / str(node)] for node in (1, 2, 3)}
    with Recorder(tmp_path / "h") as recorder:
        of_logs(directories, [("t", 0)], Counted(recorder), lagging=[("t", 0, 2)])
    found = [each.operation for each in read(tmp_path / "h")]
    assert all(isinstance(each, Read) and each.final and each.isolation is Isolation.UNCOMMITTED for each in found)
    told = [(each.replica, each.lagging, list(each.records), each.next) for each in found if isinstance(each, Read)]
    assert told == [(1, False, [(0, "a")], 1), (2, True, [], 0)]
