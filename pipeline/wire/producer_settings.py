"""A producer's settings, under Kafka's names."""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.pipeline.wire.errors import SettingError

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
TRANSACTION_TIMEOUT_MS = 900_000
"""As long as brokers allow by default (transaction.max.timeout.ms): a task's rows are one transaction."""
NAMES = frozenset(
    {
        "acks",
        "batch.size",
        "buffer.memory",
        "compression.level",
        "compression.type",
        "delivery.timeout.ms",
        "enable.idempotence",
        "linger.ms",
        "max.in.flight.requests.per.connection",
        "max.block.ms",
        "max.request.size",
        "retries",
        "transaction.timeout.ms",
    }
)
"""What is no surprise in a producer's settings; some have no effect here, for rows come in batches."""


@dataclass(frozen=True)
class ProducerSettings:
    compression: str = "none"
    level: int | None = None
    batch_bytes: int = 512 << 10
    """Of a batch's records, before compression."""
    request_bytes_max: int = 1 << 20
    buffer_bytes: int = 32 << 20
    delivery_timeout_ms: int = 120_000
    transaction_timeout_ms: int | None = None
    """None: as long as the brokers allow, up to TRANSACTION_TIMEOUT_MS."""


def producer_settings(texts: Mapping[str, str]) -> ProducerSettings:
    """Reads settings whose names have no ``kafka.`` in front. Raises SettingError."""
    said = {name.lower(): text.strip() for name, text in texts.items()}
    compression = said.get("compression.type", "none").lower()
    if compression not in COMPRESSIONS:
        raise SettingError(f"kafka.compression.type={compression} must be one of {', '.join(COMPRESSIONS)}")
    if said.get("acks", "all") not in ("all", "-1"):
        raise SettingError(
            f"kafka.acks={said['acks']}: rows that one broker alone has may be lost; only all is supported"
        )
    timeout = said.get("transaction.timeout.ms")
    return ProducerSettings(
        compression,
        _number(said, "compression.level", 0) if "compression.level" in said else None,
        _number(said, "batch.size", 512 << 10),
        _number(said, "max.request.size", 1 << 20),
        _number(said, "buffer.memory", 32 << 20),
        _number(said, "delivery.timeout.ms", 120_000),
        None if timeout is None else _number(said, "transaction.timeout.ms", 0),
    )


def _number(said: Mapping[str, str], name: str, default: int) -> int:
    text = said.get(name, str(default))
    if not text.removeprefix("-").isdecimal() or not 1 <= int(text) < 1 << 31:
        raise SettingError(f"kafka.{name}={text} must be a whole number from 1 to {(1 << 31) - 1}")
    return int(text)
