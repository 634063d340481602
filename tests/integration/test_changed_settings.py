"""Settings of one broker, changed and read by an unchanged client while the cluster runs."""

import time

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource

from ottla.testing.processes import ProcessCluster

BROKER = ConfigResource.Type.BROKER


def alter(admin: AdminClient, name: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=operation)
    (altered,) = admin.incremental_alter_configs([ConfigResource(BROKER, "1", incremental_configs=[entry])]).values()
    altered.result(60)


def described(admin: AdminClient, name: str) -> tuple[str, ConfigSource]:
    (told,) = admin.describe_configs([ConfigResource(BROKER, "1")]).values()
    entry = told.result(60)[name]
    return entry.value, ConfigSource(entry.source)


def becomes(admin: AdminClient, name: str, value: str, source: ConfigSource) -> None:
    """The broker has heard of it by the metadata log, a moment after the controller's answer."""
    deadline = time.monotonic() + 20
    while described(admin, name) != (value, source):
        assert time.monotonic() < deadline, described(admin, name)


@pytest.mark.parametrize(("name", "value"), [("message.max.bytes", "2000000"), ("num.io.threads", "16")])
def test_one_brokers_setting_is_set_told_and_taken_away(cluster: ProcessCluster, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    default, source = described(admin, name)
    alter(admin, name, value)
    becomes(admin, name, value, ConfigSource.DYNAMIC_BROKER_CONFIG)
    alter(admin, name, None)
    becomes(admin, name, default, source)


def test_what_a_running_broker_does_not_take_is_refused_with_the_reason(cluster: ProcessCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    with pytest.raises(KafkaException, match=r"write it into server\.properties"):
        alter(admin, "num.partitions", "3")
    alter(admin, "num.partitions", None)
