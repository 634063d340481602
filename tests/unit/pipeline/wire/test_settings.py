"""What ``kafka.*`` options become, and which are refused."""

import pytest

from ottla.pipeline.wire.errors import SettingError
from ottla.pipeline.wire.settings import READ_COMMITTED, client_settings

SERVERS = {"bootstrap.servers": "a:9092, [::1]:9093,PLAINTEXT://b:1"}


def test_servers_are_read_with_and_without_protocols_and_brackets() -> None:
    assert client_settings(SERVERS).bootstrap_servers == (("a", 9092), ("::1", 9093), ("b", 1))


def test_settings_have_kafkas_names_in_any_case() -> None:
    settings = client_settings(
        {**SERVERS, "Fetch.Max.Bytes": "5", "isolation.level": "READ_COMMITTED", "client.rack": "r1"}
    )

    assert (settings.fetch_max_bytes, settings.isolation_level, settings.client_rack) == (5, READ_COMMITTED, "r1")
    assert settings.reads_committed


def test_what_nobody_reads_is_told_and_what_means_nothing_here_is_not() -> None:
    settings = client_settings(
        {**SERVERS, "fetch.max.bites": "5", "linger.ms": "3", "max.poll.records": "7"}, frozenset({"linger.ms"})
    )

    assert settings.told == ("kafka.fetch.max.bites is not known to this client and has no effect",)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"bootstrap.servers": "a"}, "'a' is not host:port"),
        ({"bootstrap.servers": "a:99999"}, "'a:99999' is not host:port"),
        ({"fetch.max.bytes": "0"}, "kafka.fetch.max.bytes=0 must be a whole number from 1"),
        ({"fetch.max.bytes": "1 MB"}, "kafka.fetch.max.bytes=1 MB must be a whole number"),
        ({"retry.backoff.ms": "--1"}, "kafka.retry.backoff.ms=--1 must be a whole number"),
        ({"retry.backoff.ms": "²"}, "kafka.retry.backoff.ms=² must be a whole number"),
        ({"isolation.level": "serializable"}, "must be one of read_uncommitted, read_committed"),
        ({"security.protocol": "SASL_SSL"}, "kafka.security.protocol=SASL_SSL is not supported"),
        ({"ssl.truststore.location": "/x.jks"}, "only PEM is read here"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(texts: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError, match=said) as caught:
        client_settings({**SERVERS, **texts})

    assert "\n" not in str(caught.value)


def test_javas_names_are_read_where_the_files_are_pem() -> None:
    settings = client_settings({**SERVERS, "ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"})

    assert settings.ssl_ca_location == "/ca.pem"
    assert settings.told == ()


def test_a_certificate_that_cannot_be_read_is_named_before_anything_is_connected() -> None:
    with pytest.raises(SettingError, match=r"kafka\.ssl"):
        client_settings({**SERVERS, "security.protocol": "SSL", "ssl.ca.location": "/nowhere.pem"}).tls_context()
