import pytest

from ottla.broker.network.limits import ConnectionLimits, ServerLimits
from ottla.runtime.settings.definitions import SettingError
from ottla.runtime.settings.server import ServerConfig

NODE = {
    "node.id": "1",
    "process.roles": "broker",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
}


def test_the_defaults_are_those_of_the_settings() -> None:
    assert ServerLimits.from_config(ServerConfig(NODE)) == ServerLimits()


def test_settings_set_the_bounds() -> None:
    texts = {
        "max.connections": "100",
        "max.connections.per.ip": "10",
        "max.connections.per.ip.overrides": "127.0.0.1:200, [FE80:0::1]:50",
        "connections.max.idle.ms": "5000",
        "socket.listen.backlog.size": "7",
        "socket.request.max.bytes": "1000",
        "queued.max.requests": "20",
        "ottla.plain.request.max.bytes": "100000",
    }
    limits = ServerLimits.from_config(ServerConfig(NODE | texts))
    assert limits == ServerLimits(
        connections_max=100,
        connections_per_ip_max=10,
        connections_per_ip_overrides={"127.0.0.1": 200, "fe80::1": 50},
        idle_ms_max=5000,
        backlog=7,
        connection=ConnectionLimits(request_bytes_max=1000, plain_bytes_max=100_000, in_flight_max=20),
    )


@pytest.mark.parametrize(("text", "bytes_max"), [("-1", -1), ("0", -1), ("1", 1)])
def test_no_memory_for_requests_is_no_bound_as_in_kafka(text: str, bytes_max: int) -> None:
    limits = ServerLimits.from_config(ServerConfig(NODE | {"queued.max.request.bytes": text}))
    assert limits.memory_bytes_max == bytes_max


def test_the_listener_between_brokers_is_protected_where_clients_have_another() -> None:
    two = {"listeners": "PLAINTEXT://localhost:9092,INSIDE://localhost:9094", "inter.broker.listener.name": "INSIDE"}
    assert ServerLimits.from_config(ServerConfig(NODE | two)).protected_listener == "INSIDE"


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:many", ":"])
def test_an_override_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="is not address:number"):
        ServerLimits.from_config(ServerConfig(NODE | {"max.connections.per.ip.overrides": text}))


def test_an_override_may_be_for_a_hosts_name() -> None:
    limits = ServerLimits.from_config(ServerConfig(NODE | {"max.connections.per.ip.overrides": "monitor.lan:5,::1:2"}))
    assert limits.connections_per_ip_overrides == {"monitor.lan": 5, "::1": 2}


@pytest.mark.parametrize("host", ["a b", "mon/itor", "fe80::zz"])
def test_an_override_for_what_no_host_is_called_is_refused(host: str) -> None:
    with pytest.raises(SettingError, match="is no address, and no host's name"):
        ServerLimits.from_config(ServerConfig(NODE | {"max.connections.per.ip.overrides": f"{host}:5"}))
