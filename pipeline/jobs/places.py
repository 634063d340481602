"""Where reading begins and ends, as people write it, in the words of Spark's Kafka connector."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import click

EARLIEST, LATEST = "earliest", "latest"
_NUMBERS = {EARLIEST: -2, LATEST: -1}


class Place(NamedTuple):
    """Earliest, latest, an offset for each partition, or a time: one of these."""

    word: str = ""
    offsets: Mapping[str, Mapping[str, int]] | None = None
    time_ms: int | None = None

    def options(self, side: str) -> dict[str, str]:
        """``side``: starting or ending. A time behind a partition's last record stands for its end."""
        if self.time_ms is not None:
            return {f"{side}Timestamp": str(self.time_ms)} | (
                {"startingOffsetsByTimestampStrategy": LATEST} if side == "starting" else {}
            )
        return {f"{side}Offsets": json.dumps(self.offsets, sort_keys=True) if self.offsets else self.word}


def place_of(text: str, option: str) -> Place:
    """Raises UsageError."""
    word = text.strip()
    if word.lower() in _NUMBERS:
        return Place(word=word.lower())
    if word.startswith("{"):
        return Place(offsets=_offsets(word, option))
    try:
        then = datetime.fromisoformat(word)
    except ValueError:
        raise click.UsageError(
            f'{option} {text!r}: write earliest, latest, {{"topic":{{"0":5}}}}, or a time such as 2026-11-21T20:15 (UTC, or with +01:00)'
        ) from None
    return Place(time_ms=round((then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp() * 1000))


def _offsets(text: str, option: str) -> dict[str, dict[str, int]]:
    """Earliest and latest have their words, or -2 and -1."""
    try:
        return {
            topic: {str(int(number)): _offset(offset) for number, offset in partitions.items()}
            for topic, partitions in json.loads(text).items()
        }
    except (ValueError, AttributeError, TypeError):
        raise click.UsageError(f'{option} {text!r}: write {{"topic":{{"0":5,"1":"latest"}}}}') from None


def _offset(offset: object) -> int:
    if isinstance(offset, str):
        return _NUMBERS[offset] if offset in _NUMBERS else _offset(int(offset))
    if isinstance(offset, int) and not isinstance(offset, bool) and offset >= min(_NUMBERS.values()):
        return offset
    raise ValueError(offset)
