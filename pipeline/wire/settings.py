"""What the ``kafka.*`` options say, under Kafka's names, read once."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ottla.pipeline.wire.errors import SettingError

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_ISOLATION = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
_PROTOCOLS = ("PLAINTEXT", "SSL")


@dataclass(frozen=True)
class ClientSettings:
    """Settings of a connection to a cluster. Hashable: one cluster is kept for each in a worker's process."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "ottla-spark"
    client_rack: str = ""
    fetch_max_bytes: int = 16 << 20
    max_partition_fetch_bytes: int = 8 << 20
    fetch_max_wait_ms: int = 500
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = -1
    isolation_level: int = READ_UNCOMMITTED
    check_crcs: bool = True
    group_id: str = ""
    security_protocol: str = "PLAINTEXT"
    ssl_ca_location: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: str = ""
    ssl_endpoint_identification_algorithm: str = "https"
    told: tuple[str, ...] = ()

    @property
    def request_timeout_s(self) -> float:
        return self.request_timeout_ms / 1000

    @property
    def api_timeout_s(self) -> float:
        return self.default_api_timeout_ms / 1000

    @property
    def reads_committed(self) -> bool:
        return self.isolation_level == READ_COMMITTED

    def tls_context(self) -> ssl.SSLContext | None:
        """None for PLAINTEXT. Raises SettingError for files that cannot be read."""
        if self.security_protocol == "PLAINTEXT":
            return None
        try:
            context = ssl.create_default_context(cafile=self.ssl_ca_location or None)
            context.check_hostname = self.ssl_endpoint_identification_algorithm == "https"
            if self.ssl_certificate_location:
                key = self.ssl_key_location or self.ssl_certificate_location
                context.load_cert_chain(self.ssl_certificate_location, key, self.ssl_key_password)
        except OSError as error:  # SSLError is one
            raise SettingError(f"kafka.ssl.*: {error}: give PEM files that every executor can read") from error
        return context


def client_settings(texts: Mapping[str, str], also_known: frozenset[str] = frozenset()) -> ClientSettings:
    """Reads settings whose names have no ``kafka.`` in front. Raises SettingError, one line that says what to do.

    ``also_known``: names that somebody else reads, a producer's. What nobody reads is told, in ``told``.
    """
    names = {name.lower(): text.strip() for name, text in texts.items()}
    _refuse_sasl(names)
    values: dict[str, Any] = {"bootstrap_servers": _servers(names.get("bootstrap.servers", ""))}
    for name, text in _with_jvm_names(names).items():
        if name in READERS:
            values[name.replace(".", "_")] = READERS[name](name, text)
    known = {*READERS, *JVM_NAMES, *WITHOUT_EFFECT, "bootstrap.servers", *also_known}
    told = tuple(f"kafka.{name} is not known to this client and has no effect" for name in sorted(names.keys() - known))
    return ClientSettings(**values, told=told)


def _refuse_sasl(names: Mapping[str, str]) -> None:
    protocol = names.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        instead = "this client speaks PLAINTEXT and SSL"
        raise SettingError(
            f"kafka.security.protocol={protocol} is not supported: {instead}; give one of them a listener"
        )


def _servers(text: str) -> tuple[tuple[str, int], ...]:
    if not text:
        raise SettingError("option kafka.bootstrap.servers is missing: host:port, several with commas between")
    return tuple(_address(part.strip()) for part in text.split(",") if part.strip())


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.rpartition("://")[2].strip("[]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise SettingError(f"kafka.bootstrap.servers: {text!r} is not host:port")
    return host, int(port)


def _with_jvm_names(names: Mapping[str, str]) -> dict[str, str]:
    """What Java's names say, where it is the same: PEM files."""
    found = dict(names)
    for jvm, ours in JVM_NAMES.items():
        if jvm not in names:
            continue
        store = jvm.rpartition(".")[0]
        if jvm.endswith("store.location") and names.get(f"{store}.type", "JKS").upper() != "PEM":
            raise SettingError(f"kafka.{jvm}: only PEM is read here: set kafka.{store}.type=PEM, or kafka.{ours}")
        if ours:
            found.setdefault(ours, names[jvm])
    return found


def _text(_name: str, text: str) -> str:
    return text


def _integer(least: int, most: int = (1 << 31) - 1) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        if not text.removeprefix("-").isdecimal() or not least <= int(text) <= most:
            raise SettingError(f"kafka.{name}={text} must be a whole number from {least} to {most}")
        return int(text)

    return read


def _choice(choices: Mapping[str, Any]) -> Callable[[str, str], Any]:
    def read(name: str, text: str) -> Any:
        if text.lower() not in choices:
            raise SettingError(f"kafka.{name}={text} must be one of {', '.join(filter(None, choices))}")
        return choices[text.lower()]

    return read


READERS: dict[str, Callable[[str, str], Any]] = {
    "client.id": _text,
    "client.rack": _text,
    "group.id": _text,
    "fetch.max.bytes": _integer(1),
    "max.partition.fetch.bytes": _integer(1),
    "fetch.max.wait.ms": _integer(0),
    "request.timeout.ms": _integer(1),
    "default.api.timeout.ms": _integer(1),
    "retry.backoff.ms": _integer(0),
    "retry.backoff.max.ms": _integer(0),
    "receive.buffer.bytes": _integer(-1),
    "send.buffer.bytes": _integer(-1),
    "isolation.level": _choice(_ISOLATION),
    "check.crcs": _choice({"true": True, "false": False}),
    "security.protocol": _choice({name.lower(): name for name in _PROTOCOLS}),
    "ssl.ca.location": _text,
    "ssl.certificate.location": _text,
    "ssl.key.location": _text,
    "ssl.key.password": _text,
    "ssl.endpoint.identification.algorithm": _choice({"https": "https", "": "", "none": ""}),
}
"""The settings that do something here, and how each is read."""

JVM_NAMES = {
    "ssl.truststore.type": "",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.keystore.type": "",
    "ssl.keystore.location": "ssl.certificate.location",
}
"""Java's names of settings that have another here."""

WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "api.version.request",
        "auto.commit.interval.ms",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "fetch.min.bytes",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metric.reporters",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "session.timeout.ms",
        "socket.connection.setup.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
    }
)
"""Settings of Java's consumer that say nothing here, where there is no group, no idle connection and no automatic topic."""

assert {name.replace(".", "_") for name in READERS} <= {field.name for field in fields(ClientSettings)}
