"""A node does not promise safety that it does not give."""

from pathlib import Path

import pytest

from ottla.runtime.settings.definitions import SettingError, server_settings
from ottla.runtime.settings.security import missing_promise, protocol_of
from ottla.runtime.settings.server import ServerConfig

NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9192",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9192",
}
MAP = "listener.security.protocol.map"
TWO = "INSIDE://localhost:9092,CONTROLLER://localhost:9192"


def refusal(change: dict[str, str]) -> list[str]:
    with pytest.raises(SettingError) as caught:
        ServerConfig(NODE | change)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ssl.keystore.location", "/etc/kafka/keys.jks"),
        ("ssl.client.auth", "required"),
        ("ssl.keystore.filename", "keys.jks"),  # of Kafka's image
        ("sasl.enabled.mechanisms", "SCRAM-SHA-512"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        ("sasl.server.max.receive.size", "many"),
        ("listener.name.outside.ssl.keystore.location", "/etc/kafka/keys.jks"),
        ("listener.name.outside.scram-sha-512.sasl.jaas.config", "org.apache.kafka..."),
        ("listener.name.outside.principal.builder.class", "com.example.Builder"),
        ("security.inter.broker.protocol", "SASL_SSL"),
        ("security.inter.broker.protocol", "ssl"),
        ("security.providers", "com.example.Provider"),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("super.users", "User:admin"),
        ("allow.everyone.if.no.acl.found", "false"),
        ("principal.builder.class", "com.example.Builder"),
        ("connections.max.reauth.ms", "3600000"),
        ("delegation.token.secret.key", "abc"),
        ("password.encoder.secret", "abc"),
        ("create.topic.policy.class.name", "com.example.Policy"),
        ("alter.config.policy.class.name", "com.example.Policy"),
        ("client.quota.callback.class", "com.example.Quotas"),
    ],
)
def test_a_setting_that_promises_safety_is_refused_and_named(name: str, text: str) -> None:
    lines = refusal({name: text})
    assert lines[0].startswith(name)
    assert "; remove it" in lines[0]


def test_every_setting_of_tls_and_sasl_is_one() -> None:
    names = [name for name in server_settings() if name.startswith(("ssl.", "sasl.", "delegation.token."))]
    assert len(names) > 70
    assert all(missing_promise(name) for name in names)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"listeners": "SSL://localhost:9092,CONTROLLER://localhost:9192"}, "write PLAINTEXT://localhost:9092"),
        ({"listeners": "sasl_ssl://localhost:9092,CONTROLLER://localhost:9192"}, "no TLS and no SASL"),
        ({"listeners": TWO, MAP: "INSIDE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"}, "write INSIDE:PLAINTEXT there"),
        ({"listeners": TWO, MAP: "INSIDE:plaintext,CONTROLLER:ssl"}, "listeners=CONTROLLER://"),
        ({"listeners": TWO, MAP: "INSDIE:SASL_SSL,CONTROLLER:PLAINTEXT"}, f"not in {MAP}; add INSIDE:PLAINTEXT"),
        ({MAP: "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"}, "says PLAINTEXT:SSL"),
        ({MAP: "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,X:TLS"}, "'X:TLS' is not NAME:PROTOCOL"),
        ({"advertised.listeners": "SSL://example.org:9092"}, "advertised.listeners=SSL://"),
    ],
)
def test_a_listener_that_is_not_plaintext_is_refused(change: dict[str, str], words: str) -> None:
    assert words in "\n".join(refusal(change))


def test_a_broker_whose_controllers_speak_tls_is_refused() -> None:
    change = {"process.roles": "broker", "listeners": "PLAINTEXT://localhost:9092", "controller.listener.names": "SSL"}
    assert refusal(change)[0].startswith("controller.listener.names=SSL: there is no TLS yet")


def test_all_of_them_stand_in_one_message_with_what_else_is_wrong() -> None:
    lines = refusal(
        {
            "listeners": "SASL_SSL://localhost:9092,CONTROLLER://localhost:9192",
            "ssl.keystore.location": "/etc/kafka/keys.jks",
            "ssl.keystore.password": "open sesame",
            "authorizer.class.name": "x.Authorizer",
            "log.dri": "/x",
            "num.partitions": "many",
        }
    )
    assert len(lines) == 6
    assert "sesame" not in "".join(lines)
    assert [line for line in lines if "did you mean log.dir" in line]
    assert "num.partitions=many: write a whole number" in lines


def test_the_environment_of_kafkas_image_is_judged_too(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("".join(f"{name}={text}\n" for name, text in NODE.items()))
    environment = {
        "KAFKA_SUPER_USERS": "User:admin",
        "KAFKA_LISTENER_NAME_OUTSIDE_SCRAM___SHA___512_SASL_JAAS_CONFIG": "secret",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    with pytest.raises(SettingError) as caught:
        ServerConfig.load(properties, environment)
    assert len(str(caught.value).splitlines()) == 3


def test_what_a_plaintext_node_of_kafka_says_is_taken() -> None:
    """As Kafka's own examples write it."""
    config = ServerConfig(
        NODE
        | {
            "inter.broker.listener.name": "PLAINTEXT",
            "security.inter.broker.protocol": "PLAINTEXT",
            MAP: "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.client.auth": "none",
            "authorizer.class.name": "",
        }
    )
    assert config.inter_broker_listener.port == 9092


def test_brokers_do_not_replicate_over_another_listener_than_the_one_that_was_asked_for() -> None:
    assert refusal({"inter.broker.listener.name": "INSIDE"}) == [
        "inter.broker.listener.name=INSIDE: write one that is advertised: PLAINTEXT"
    ]


@pytest.mark.parametrize(
    ("listener", "protocol"),
    [
        ("INSIDE", "SASL_SSL"),
        ("OUTSIDE", "SSL"),
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT"),
        ("SSL", "PLAINTEXT"),
        ("NEW", "PLAINTEXT"),
    ],
)
def test_a_listeners_protocol_is_the_maps_or_its_own_name(listener: str, protocol: str) -> None:
    assert protocol_of(listener, "inside:SASL_SSL, OUTSIDE:ssl,SSL:PLAINTEXT") == protocol
