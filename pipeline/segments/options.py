"""The options of ``format("ottla-segments")``, checked at once."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.pipeline.arrow.schema import COLUMNS, COLUMNS_WITHOUT_HEADERS, schema
from ottla.pipeline.segments.errors import SegmentsError
from ottla.pipeline.segments.planning import Choice

SPLIT_BYTES = 64 << 20

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)
_KNOWN = (
    "path",
    "subscribe",
    "subscribePattern",
    "topicId",
    "columns",
    "includeHeaders",
    "isolationLevel",
    "upTo",
    "maxPartitionBytes",
    "minPartitions",
    "failOnDataLoss",
)


class SegmentsOptions(NamedTuple):
    paths: tuple[str, ...]
    choice: Choice
    pattern: re.Pattern[str] | None
    columns: tuple[str, ...]
    split_bytes: int
    min_partitions: int
    fail_on_data_loss: bool


def parse(given: Mapping[str, str]) -> SegmentsOptions:
    """Names are any mixture of cases, as Spark's are. Raises SegmentsError."""
    options = {name.lower(): value for name, value in given.items()}
    unknown = sorted(set(options) - {name.lower() for name in _KNOWN})
    if unknown:
        raise SegmentsError(f"unknown option {', '.join(unknown)}; there are {', '.join(_KNOWN)}")
    paths = tuple(part.strip() for part in options.get("path", "").split(",") if part.strip())
    if not paths:
        raise SegmentsError("say with load(path) or option path which directories hold the logs")
    if "subscribe" in options and "subscribepattern" in options:
        raise SegmentsError("subscribe and subscribePattern: one of them")
    topics = frozenset(part.strip() for part in options["subscribe"].split(",")) if "subscribe" in options else None
    choice = Choice(
        topics,
        options.get("topicid"),
        _one_of(options, "isolationLevel", ("read_committed", "read_uncommitted")) == "read_committed",
        _one_of(options, "upTo", ("high-watermark", "log-end")) == "log-end",
    )
    return SegmentsOptions(
        paths,
        choice,
        _pattern(options.get("subscribepattern")),
        _columns(options),
        _value(options, "maxPartitionBytes", SPLIT_BYTES, _bytes),
        _value(options, "minPartitions", 1, int),
        _one_of(options, "failOnDataLoss", ("true", "false")) == "true",
    )


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    default = COLUMNS if _one_of(options, "includeHeaders", ("false", "true")) == "true" else COLUMNS_WITHOUT_HEADERS
    if "columns" not in options:
        return default
    columns = tuple(part.strip() for part in options["columns"].split(","))
    try:
        schema(columns)
    except ValueError as error:
        raise SegmentsError(f"option columns: {error}") from None
    return columns


def _one_of(options: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    """The first of the values is the default."""
    value = options.get(name.lower(), values[0]).lower()
    if value not in values:
        raise SegmentsError(f"option {name}: {value!r} is none of {', '.join(values)}")
    return value


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise SegmentsError(f"option subscribePattern: {error}") from None


def _value(options: Mapping[str, str], name: str, default: int, read: Callable[[str], int]) -> int:
    text = options.get(name.lower())
    try:
        value = default if text is None else read(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise SegmentsError(f"option {name}: {text!r} is no size")
    return value


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(match[1]) << 10 * "kmgt".find(match[2].lower() or "-") + 10 if match[2] else int(match[1])
