"""The options of ``format("ottla")``: those of Spark's Kafka connector, and some more. Read once, on the driver."""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.pipeline.source import texts
from ottla.pipeline.source.bounds import Bound, Kind
from ottla.pipeline.source.errors import OptionError
from ottla.pipeline.wire.settings import ClientSettings, client_settings

KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
FORMATS = ("json", "avro", "protobuf")
RAW_OF_FAULTY = "corrupt"
BYTES_PER_TASK = 128 << 20
TRIGGER_DELAY_MS = 15 * 60_000

REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "the source commits nothing itself: see the group of the jobs",
    "interceptor.classes": "no class of Java's runs here",
    "key.deserializer": "keys are bytes: decode them with functions of Spark",
    "value.deserializer": "values are bytes: decode them with value.format or functions of Spark",
    "key.serializer": "keys are bytes",
    "value.serializer": "values are bytes",
}
"""What Spark's connector refuses too, and what to use instead."""

WITHOUT_EFFECT = {
    "groupidprefix",
    "kafkaconsumer.polltimeoutms",
    "fetchoffset.numretries",
    "fetchoffset.retryintervalms",
}
"""Options of Spark's connector that say nothing here: the source is in no group, and its patience is default.api.timeout.ms."""

_TOPICS = ("assign", "subscribe", "subscribePattern")
_ONLY_STREAMS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")


@dataclass(frozen=True)
class Topics:
    """Exactly one of the three."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    assigned: Mapping[str, tuple[int, ...]] | None = None

    @property
    def asked(self) -> tuple[str, ...] | None:
        """The names to ask Metadata for, None for all."""
        return tuple(self.assigned) if self.assigned is not None else self.names or None


@dataclass(frozen=True)
class ValueFormat:
    """How values are decoded: ``schema`` is text or, of a file, its bytes."""

    name: str
    schema: bytes
    message: str = ""
    prefix: str = ""
    keeps_faulty: bool = False
    """The column ``value`` is there, with the bytes of values that could not be decoded, null for the others."""


@dataclass(frozen=True)
class SourceOptions:
    client: ClientSettings
    topics: Topics
    starting: Bound
    ending: Bound | None
    begins_late: bool = False
    """Where nothing is as young as the starting time: begin at the end, rather than fail."""
    fails_on_loss: bool = True
    includes_headers: bool = False
    columns: tuple[str, ...] | None = None
    format: ValueFormat | None = None
    tasks_min: int | None = None
    tasks_max: int | None = None
    task_records_max: int | None = None
    task_bytes: int = BYTES_PER_TASK
    pushdown: bool = False
    trigger_offsets_max: int | None = None
    trigger_offsets_min: int | None = None
    trigger_bytes_max: int | None = None
    trigger_delay_ms: int = TRIGGER_DELAY_MS
    told: tuple[str, ...] = ()


def parse_options(
    given: Mapping[str, str], *, streaming: bool, read: Callable[[str], bytes] | None = None
) -> SourceOptions:
    """Reads options in any case. Raises OptionError, one line that says what to do. ``read``: reads a schema's file."""
    texts_of = {name.lower(): str(text) for name, text in given.items()}
    _known(texts_of)
    values: dict[str, Any] = {
        field: reader(name, texts_of[name.lower()])
        for name, (field, reader) in SIMPLE.items()
        if name.lower() in texts_of
    }
    least, most = values.get("trigger_offsets_min"), values.get("trigger_offsets_max")
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}")
    few, many = values.get("tasks_max"), values.get("tasks_min")
    if few is not None and many is not None and many > few:
        raise OptionError(f"minPartitions={many} is more than maxTasks={few}")
    kafka = {name.removeprefix("kafka."): text for name, text in texts_of.items() if name.startswith("kafka.")}
    client = client_settings(kafka)
    told = client.told
    if not streaming:
        told += tuple(f"{name} means nothing in a batch read" for name in _ONLY_STREAMS if name.lower() in texts_of)
    return SourceOptions(
        client=client,
        topics=_topics(texts_of),
        starting=_starting(texts_of, streaming),
        ending=_ending(texts_of, streaming),
        begins_late=_begins_late(texts_of),
        columns=texts.names(texts_of["columns"]) if "columns" in texts_of else None,
        format=_format(texts_of, read or _read_file),
        told=told,
        **values,
    )


SIMPLE: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "failOnDataLoss": ("fails_on_loss", texts.boolean),
    "includeHeaders": ("includes_headers", texts.boolean),
    "minPartitions": ("tasks_min", texts.count),
    "maxTasks": ("tasks_max", texts.count),
    "maxRecordsPerPartition": ("task_records_max", texts.count),
    "bytesPerTask": ("task_bytes", texts.size),
    "pushdown": ("pushdown", texts.boolean),
    "maxOffsetsPerTrigger": ("trigger_offsets_max", texts.count),
    "minOffsetsPerTrigger": ("trigger_offsets_min", texts.count),
    "maxBytesPerTrigger": ("trigger_bytes_max", texts.size),
    "maxTriggerDelay": ("trigger_delay_ms", texts.duration_ms),
}
"""Options that are one value: the field, and how it is read."""

_OTHERS = (
    *_TOPICS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "columns",
    "value.format",
    "value.schema",
    "value.schema.file",
    "value.message",
    "value.prefix",
    "value.raw",
)
NAMES = (
    *SIMPLE,
    *_OTHERS,
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
"""Every option without ``kafka.``."""


def _known(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in NAMES}
    for name in given:
        setting = name.removeprefix("kafka.")
        if setting != name and setting in REFUSED:
            raise OptionError(f"option {name} is not supported: {REFUSED[setting]}")
        if setting == name and name not in known:
            near = difflib.get_close_matches(name, [*known, "kafka.bootstrap.servers"], 1)
            hint = f"; is {known.get(near[0], near[0])} meant?" if near else "; see docs/pipeline.md"
            raise OptionError(f"there is no option {name}{hint}")


def _topics(given: Mapping[str, str]) -> Topics:
    chosen = [name for name in _TOPICS if name.lower() in given]
    if len(chosen) != 1:
        said = f"not {' and '.join(chosen)}" if chosen else "none is given"
        raise OptionError(f"exactly one of the options assign, subscribe and subscribePattern is needed; {said}")
    text = given[chosen[0].lower()]
    if chosen == ["assign"]:
        return Topics(assigned=texts.partition_lists("assign", text))
    if chosen == ["subscribe"]:
        names = texts.names(text)
        if not names:
            raise OptionError("option subscribe must name a topic, several with commas between")
        return Topics(names=names)
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"option subscribePattern={text} is no regular expression: {error}") from None
    if not text:
        raise OptionError("option subscribePattern is empty")
    return Topics(pattern=text)


def _starting(given: Mapping[str, str], streaming: bool) -> Bound:
    by_time = _by_time(given, "starting")
    if by_time:
        return by_time
    text = given.get("startingoffsets", "latest" if streaming else "earliest").strip()
    if text.lower() == "latest" and not streaming:
        raise OptionError("option startingOffsets=latest leaves a batch read nothing: use earliest, offsets or a time")
    bound = _offsets("startingOffsets", text)
    if not streaming and -1 in bound.values.values():
        raise OptionError("option startingOffsets: -1 (latest) leaves a batch read nothing")
    return bound


def _ending(given: Mapping[str, str], streaming: bool) -> Bound | None:
    """None for a stream without an end."""
    by_time = _by_time(given, "ending")
    if by_time:
        return by_time
    if streaming and "endingoffsets" not in given:
        return None
    text = given.get("endingoffsets", "latest").strip()
    if text.lower() == "earliest":
        raise OptionError("option endingOffsets=earliest leaves nothing to read: use latest, offsets or a time")
    bound = _offsets("endingOffsets", text)
    if -2 in bound.values.values():
        raise OptionError("option endingOffsets: -2 (earliest) leaves nothing to read")
    return bound


def _by_time(given: Mapping[str, str], which: str) -> Bound | None:
    one, each = f"{which}Timestamp", f"{which}OffsetsByTimestamp"
    if one.lower() in given:
        return Bound(Kind.TIME, one, ms=texts.milliseconds(one, given[one.lower()].strip()))
    if each.lower() in given:
        return Bound(Kind.TIMES, each, texts.partition_numbers(each, given[each.lower()]))
    return None


def _offsets(option: str, text: str) -> Bound:
    if text.lower() in ("earliest", "latest"):
        return Bound(Kind.EARLIEST if text.lower() == "earliest" else Kind.LATEST, option)
    if not text.startswith("{"):
        raise OptionError(f'option {option}={text} must be earliest, latest or JSON as {{"topic":{{"0":23}}}}')
    return Bound(Kind.OFFSETS, option, texts.partition_numbers(option, text, least=-2))


def _begins_late(given: Mapping[str, str]) -> bool:
    text = given.get("startingoffsetsbytimestampstrategy", "error").lower()
    if text not in ("error", "latest"):
        raise OptionError(f"option startingOffsetsByTimestampStrategy={text} must be error or latest")
    return text == "latest"


def _format(given: Mapping[str, str], read: Callable[[str], bytes]) -> ValueFormat | None:
    name = given.get("value.format", "").lower()
    if not name:
        for option in ("value.schema", "value.schema.file", "value.message", "value.prefix", "value.raw"):
            if option in given:
                raise OptionError(f"option {option} needs value.format, one of {', '.join(FORMATS)}")
        return None
    if name not in FORMATS:
        raise OptionError(f"option value.format={name} must be one of {', '.join(FORMATS)}")
    if ("value.schema" in given) == ("value.schema.file" in given):
        raise OptionError(f"option value.format={name} needs value.schema, or value.schema.file, and not both")
    schema = given["value.schema"].encode() if "value.schema" in given else read(given["value.schema.file"])
    if name == "protobuf" and not given.get("value.message"):
        raise OptionError("option value.format=protobuf needs value.message, the name of a message in the schema")
    if given.get("value.raw", RAW_OF_FAULTY) != RAW_OF_FAULTY:
        raise OptionError(f"option value.raw={given['value.raw']} must be {RAW_OF_FAULTY}")
    return ValueFormat(
        name, schema, given.get("value.message", ""), given.get("value.prefix", ""), "value.raw" in given
    )


def _read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise OptionError(f"option value.schema.file={path} cannot be read on the driver: {error.strerror}") from None
