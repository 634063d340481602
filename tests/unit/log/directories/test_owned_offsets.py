"""Checkpoints that say whose their offsets are, in a file that everybody else reads as ever."""

import pytest

from ottla.log.directories.checkpoints import CheckpointError
from ottla.log.directories.owned_offsets import OwnedOffsets, claim, owned_table, read_owned
from ottla.log.names import NO_TOPIC_ID, TopicIdPartition, TopicPartition
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.testing.log.offset_checkpoint import OffsetCheckpoint

PATH = "/data/recovery-point-offset-checkpoint"
OLD, NEW = bytes(range(16)), bytes(range(1, 17))


def of(topic: str, number: int, topic_id: bytes = OLD) -> TopicIdPartition:
    return TopicIdPartition(TopicPartition(topic, number), topic_id)


OFFSETS: OwnedOffsets = {of("flights", 0): 120, of("crews", 7, NEW): 5, of("flights", 1): 95}
TABLE = """\
0
5
flights@AAECAwQFBgcICQoLDA0ODw 2 0
flights 0 120
flights 1 95
crews@AQIDBAUGBwgJCgsMDQ4PEA 1 0
crews 7 5
"""


def write(disk: SimulatedDisk, text: str) -> None:
    disk.write_atomically(PATH, text.encode())


def test_a_topics_rows_come_behind_one_with_its_id(disk: SimulatedDisk) -> None:
    assert owned_table(OFFSETS).decode() == TABLE
    write(disk, TABLE)
    assert read_owned(disk, PATH) == OFFSETS


def test_who_knows_nothing_of_owners_finds_the_offsets_and_names_that_nobody_has(disk: SimulatedDisk) -> None:
    write(disk, TABLE)
    rows = OffsetCheckpoint(disk, PATH).read()
    assert {name: rows[name] for name in rows if "@" not in name.topic} == {
        key.partition: offset for key, offset in OFFSETS.items()
    }


def test_two_topics_of_one_name_are_told_apart(disk: SimulatedDisk) -> None:
    both = {of("flights", 0): 120, of("flights", 0, NEW): 3}
    disk.write_atomically(PATH, owned_table(both))
    assert read_owned(disk, PATH) == both


def test_rows_of_an_older_node_have_no_owner(disk: SimulatedDisk) -> None:
    OffsetCheckpoint(disk, PATH).write({TopicPartition("flights", 0): 120})
    assert read_owned(disk, PATH) == {of("flights", 0, NO_TOPIC_ID): 120}


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (["flights@AAECAwQFBgcICQoLDA0ODw 2 0", "flights 0 120"], "1 rows of flights are missing"),
        (["flights@AAECAwQFBgcICQoLDA0ODw 1 0", "crews 0 120"], "line 4: of crews where 1 more of flights"),
        (["flights@AAECAwQFBgcICQoLDA0ODw 1 0", "crews@AAECAwQFBgcICQoLDA0ODw 0 0"], "line 4: 1 more rows of flights"),
        (["flights@c2hvcnQ 0 0"], "line 3: 'c2hvcnQ' is not a 16-byte id"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(disk: SimulatedDisk, rows: list[str], line: str) -> None:
    write(disk, "\n".join(["0", str(len(rows)), *rows]) + "\n")
    with pytest.raises(CheckpointError, match=line):
        read_owned(disk, PATH)


def test_what_is_claimed_is_of_the_logs_that_lie_there(disk: SimulatedDisk) -> None:
    OffsetCheckpoint(disk, PATH).write({TopicPartition("flights", 0): 120, TopicPartition("gone", 0): 9})
    claim(disk, PATH, lambda: {TopicPartition("flights", 0): NEW})
    assert read_owned(disk, PATH) == {of("flights", 0, NEW): 120}


def test_what_has_an_owner_keeps_it(disk: SimulatedDisk) -> None:
    write(disk, TABLE)
    claim(disk, PATH, lambda: {TopicPartition("flights", 0): NEW})
    assert read_owned(disk, PATH) == OFFSETS
