"""How far the log of a leader that was not in sync is that of those who were."""

from pathlib import Path

from ottla.log.records import Record, encode_batch
from ottla.testing.chaos.workloads import kept


def replica(path: Path, *batches: tuple[int, int, str]) -> Path:
    """Each batch: base offset, leader epoch, value."""
    path.mkdir()
    whole = bytearray()
    for offset, epoch, value in batches:
        batch = bytearray(encode_batch([Record(0, 0, None, value.encode())]))
        batch[0:8], batch[12:16] = offset.to_bytes(8, "big"), epoch.to_bytes(4, "big")
        whole += batch
    (path / "00000000000000000000.log").write_bytes(whole)
    return path


def test_what_a_deposed_leader_wrote_alone_is_not_common(tmp_path: Path) -> None:
    """It stands where its successor wrote something else, which was acknowledged."""
    alone = replica(tmp_path / "a", (0, 0, "x"), (1, 0, "y"), (2, 0, "mine"))
    followed = replica(tmp_path / "b", (0, 0, "x"), (1, 0, "y"), (2, 1, "theirs"), (3, 1, "mine"))
    assert kept.common(alone, followed) == 2


def test_the_same_record_of_another_epoch_is_not_common(tmp_path: Path) -> None:
    one = replica(tmp_path / "a", (0, 0, "x"), (1, 0, "y"))
    other = replica(tmp_path / "b", (0, 0, "x"), (1, 1, "y"))
    assert kept.common(one, other) == 1


def test_of_a_log_that_is_shorter_all_is_common(tmp_path: Path) -> None:
    one = replica(tmp_path / "a", (0, 0, "x"))
    other = replica(tmp_path / "b", (0, 0, "x"), (1, 0, "y"))
    assert kept.common(one, other) == kept.common(other, one) == 1
    assert kept.common(replica(tmp_path / "c"), one) == 0


def test_what_was_found_is_kept_by_place(tmp_path: Path) -> None:
    assert kept.read(tmp_path) == {}
    kept.write(tmp_path, {("registers-1", 0): 7})
    assert kept.read(tmp_path) == {"registers-1-0": 7}
