"""What Apache Kafka answers to the batches of `ottla.testing.log.strange_batches`, as the table that our tests are held to.

    python tests/peers/kafka/answers.py [COUNT] > tests/unit/log/batch_answers.txt

A letter a seed, a hundred a line, behind a CRC of the batches of that line before anything is compressed: so that a table of other
batches is noticed. `kafka install` first.
"""

import subprocess
import sys
from pathlib import Path
from zlib import crc32

from ottla.testing.log.strange_batches import NOW, StrangeBatch, strange_batch

PEER = Path(__file__).parent
COUNT = 12_000
PER_LINE = 100
LETTERS = {  # as tests/unit/log/test_batch_answers.py reads them
    ".": "NONE",
    "r": "INVALID_RECORD",
    "c": "CORRUPT_MESSAGE",
    "t": "INVALID_TIMESTAMP",
    "l": "MESSAGE_TOO_LARGE",
    "u": "UNKNOWN_SERVER_ERROR",
    "e": "INVALID_PRODUCER_EPOCH",
}


def kafkas_answers(batches: list[StrangeBatch]) -> list[str]:
    """The name of the error for each batch, NONE where it is taken."""
    lines = "".join(f"{each.settings} {each.data.hex()}\n" for each in batches)
    command = [str(PEER / "kafka"), "run", str(PEER / "BatchAnswers.java"), str(NOW)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    found: list[str] = done.stdout.split()
    return found


def main() -> None:
    batches = [strange_batch(seed) for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT)]
    letter_of = {name: letter for letter, name in LETTERS.items()}
    letters = "".join(letter_of[name] for name in kafkas_answers(batches))
    assert len(letters) == len(batches)
    for start in range(0, len(batches), PER_LINE):
        line = batches[start : start + PER_LINE]
        print(f"{crc32(b''.join(each.plain for each in line)):08x} {letters[start : start + PER_LINE]}")


if __name__ == "__main__":
    main()
