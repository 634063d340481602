"""What a user may say about writing to topics."""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.pipeline.sinks.errors import OptionRefused
from ottla.pipeline.sinks.options import OF_SPARK, number, refuse_unknown, transaction
from ottla.pipeline.wire.producer_settings import NAMES, ProducerSettings, producer_settings
from ottla.pipeline.wire.settings import ClientSettings, client_settings

COLUMNS = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("integer", "long", "short", "byte"),
    "timestamp": ("timestamp",),
    "headers": ("array",),
}
MODES = ("exactly-once", "at-least-once")
TOO_LATE = ("refuse", "write", "skip")
_NAMES = (*OF_SPARK, "topic", "mode", "compression", "offsetsKeptHours", "lateReplay", "txnAppId", "txnVersion")
"""Every option without ``kafka.``; of those the client's and the producer's are known, and others change nothing, as in Kafka."""
KEPT_HOURS = 144
"""A day less than brokers keep offsets of groups that nobody uses (offsets.retention.minutes)."""


@dataclass(frozen=True)
class TopicOptions:
    client: ClientSettings
    producer: ProducerSettings
    topic: str | None
    exactly_once: bool
    app_id: str
    app_version: int
    checkpoint: str = ""
    kept_hours: int = KEPT_HOURS
    too_late: str = TOO_LATE[0]


def topic_options(told: Mapping[str, str]) -> TopicOptions:
    said = {name.lower(): value for name, value in told.items()}
    refuse_unknown(said, _NAMES, "kafka.")
    mode = said.get("mode", MODES[0]).lower()
    if mode not in MODES:
        raise OptionRefused(f"mode={mode}: it is one of {', '.join(MODES)}")
    kafka = {name.removeprefix("kafka."): value for name, value in said.items() if name.startswith("kafka.")}
    if "compression" in said:
        kafka["compression.type"] = said["compression"]
    for name in ("transactional.id", "key.serializer", "value.serializer", "interceptor.classes"):
        if name in kafka:
            raise OptionRefused(f"kafka.{name} is the sink's own: leave it out")
    app_id, app_version = transaction(said)
    return TopicOptions(
        client_settings(kafka, NAMES),
        producer_settings(kafka),
        said.get("topic"),
        mode == MODES[0],
        app_id,
        app_version,
        said.get("checkpointlocation", ""),
        number(said, "offsetsKeptHours", KEPT_HOURS),
        _too_late(said),
    )


def _too_late(said: Mapping[str, str]) -> str:
    chosen = said.get("lateReplay".lower(), TOO_LATE[0]).lower()
    if chosen not in TOO_LATE:
        raise OptionRefused(f"lateReplay={chosen}: it is one of {', '.join(TOO_LATE)}")
    return chosen


def check_columns(options: TopicOptions, fields: Mapping[str, str]) -> None:
    """Of the rows, with their types in Spark's words."""
    if "value" not in fields:
        raise OptionRefused(f"A topic's rows need a column value (string or binary); there are {', '.join(fields)}")
    if options.topic is None and "topic" not in fields:
        raise OptionRefused("Say which topic: option topic, or a column of that name")
    for name, kind in fields.items():
        if name not in COLUMNS:
            raise OptionRefused(
                f"Column {name} is none that a record has ({', '.join(COLUMNS)}): select, or put it into value"
            )
        if kind not in COLUMNS[name]:
            raise OptionRefused(f"Column {name} is {kind}; it has to be {' or '.join(COLUMNS[name])}")
