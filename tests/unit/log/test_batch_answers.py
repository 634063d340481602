"""Twelve thousand strange batches get the answer that Apache Kafka 4.3.1 gives, or differ for a reason that stands here.

``batch_answers.txt`` is what Kafka said, made by ``tests/peers/kafka/answers.py``; tests/conformance asks it again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import pytest

from ottla.log.batch import HEADER_BYTES, LOG_APPEND_TIME
from ottla.log.validation import looks_inside, prepare
from ottla.runtime.errors import KafkaError
from ottla.testing.log.strange_batches import NOW, StrangeBatch, strange_batch

TABLE = [line.split() for line in (Path(__file__).parent / "batch_answers.txt").read_text().splitlines()]
PER_LINE = 100
LINES_PER_TEST = 10
TAKEN, RECORD, CORRUPT, TIMESTAMP, SIZE, UNKNOWN = (
    "NONE",
    "INVALID_RECORD",
    "CORRUPT_MESSAGE",
    "INVALID_TIMESTAMP",
    "MESSAGE_TOO_LARGE",
    "UNKNOWN_SERVER_ERROR",
)
LETTERS = {
    ".": TAKEN,
    "r": RECORD,
    "c": CORRUPT,
    "t": TIMESTAMP,
    "l": SIZE,
    "u": UNKNOWN,
    "e": "INVALID_PRODUCER_EPOCH",
}


class Answers(NamedTuple):
    """What Kafka said and what we say."""

    batch: StrangeBatch
    kafka: str
    ours: str

    def after(self, *faults: str) -> bool:
        return any(fault in self.batch.wrong for fault in faults)

    @property
    def looked_at(self) -> bool:
        data = self.batch.data
        return len(data) >= HEADER_BYTES and looks_inside(data[22], self.batch.config)


DEVIATIONS: dict[str, Callable[[Answers], bool]] = {
    # Kafka walks every record of every batch; here that would cost more than all the rest of a Produce. Nothing of ours depends
    # on it: what is sound by its CRC is never taken for damage. Whoever reads the topic meets what its producer wrote.
    "records that are not compressed are counted against their bytes, and their header's times believed": lambda each: (
        not each.looked_at
        and ((each.kafka in (RECORD, TIMESTAMP) and each.ours == TAKEN) or each.after("max_timestamp"))
    ),
    "what Kafka's decompressors and its builder throw has no code of its own: UNKNOWN_SERVER_ERROR": lambda each: (
        each.kafka == UNKNOWN and each.ours != TAKEN
    ),
    "Kafka drops what follows a batch and is none, or stumbles over it": lambda each: (
        each.after("a byte more", "wrong length") and each.ours == RECORD
    ),
    "Kafka ignores attributes that nobody knows, and a transaction without a producer": lambda each: (
        each.after("attributes") and (each.kafka, each.ours) == (TAKEN, RECORD)
    ),
    # Its own message says that producers should not set it.
    "Kafka overlooks the timestamp type of a batch whose records have times": lambda each: (
        bool(each.batch.data[22] & LOG_APPEND_TIME) and (each.kafka, each.ours) == (TAKEN, TIMESTAMP)
    ),
    "Java's gzip and LZ4 ignore what lies behind their frames; other readers do not": lambda each: (
        each.after("garbage behind the records") and (each.kafka, each.ours) == (TAKEN, RECORD)
    ),
    "to Kafka any negative length is null; to other readers only -1 is": lambda each: (
        each.after("key length", "value length") and (each.kafka, each.ours) == (TAKEN, RECORD)
    ),
    # Made for producers of message format 1, which are gone. Refused, for nobody sends it but by mistake.
    "Kafka numbers records anew whose offset deltas do not count from 0": lambda each: (
        (each.after("offset delta") or (each.after("tail") and each.after("count and delta")))
        and each.looked_at
        and (each.kafka, each.ours) == (TAKEN, RECORD)
    ),
    "Kafka skips through compressed records by their fields, and readers that go by their lengths lose the way": lambda each: (
        bool(each.batch.codec)
        and each.after("record length", "bytes after the fields", "wide varints")
        and (each.kafka, each.ours) == (TAKEN, RECORD)
    ),
    "Kafka's times wrap around at 64 bits, and its recompression refuses negative ones": lambda each: (
        each.after("timestamp delta", "base_timestamp")
        and (each.kafka, each.ours) in ((TIMESTAMP, TAKEN), (TAKEN, TIMESTAMP), (UNKNOWN, TAKEN))
    ),
    "of two faults another is named": lambda each: (
        TAKEN not in (each.kafka, each.ours) and (len(each.batch.wrong) > 1 or each.batch.config.compacted)
    ),
}  # fmt: skip


def our_answer(batch: StrangeBatch) -> str:
    try:
        prepare(bytearray(batch.data), batch.config, NOW)
    except KafkaError as error:
        return error.code.name
    return TAKEN


def answers(line: int) -> list[Answers]:
    crc, letters = TABLE[line]
    batches = [strange_batch(seed) for seed in range(line * PER_LINE, line * PER_LINE + len(letters))]
    assert f"{crc32(b''.join(each.plain for each in batches)):08x}" == crc, "the table is of other batches"
    return [Answers(batch, LETTERS[letter], our_answer(batch)) for batch, letter in zip(batches, letters, strict=True)]


@pytest.mark.parametrize("first", range(0, len(TABLE), LINES_PER_TEST))
def test_strange_batches_get_kafkas_answer_or_there_is_a_reason(first: int) -> None:
    for line in range(first, min(first + LINES_PER_TEST, len(TABLE))):
        for each in answers(line):
            if each.kafka != each.ours and not any(applies(each) for applies in DEVIATIONS.values()):
                pytest.fail(f"seed {each.batch.seed}: {each.batch.wrong}: Kafka says {each.kafka}, we say {each.ours}")


def test_every_reason_to_differ_is_needed() -> None:
    different = [each for line in range(40) for each in answers(line) if each.kafka != each.ours]
    unused = [reason for reason, applies in DEVIATIONS.items() if not any(applies(each) for each in different)]
    assert unused == []


def test_the_table_is_large_enough() -> None:
    assert sum(len(letters) for _, letters in TABLE) >= 10_000
