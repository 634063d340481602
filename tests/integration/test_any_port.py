"""A broker that takes any free port tells which one it has."""

from confluent_kafka.admin import AdminClient

from ottla.runtime.settings.definitions import value_text
from ottla.runtime.settings.server import ServerConfig
from ottla.testing.cluster import Cluster


def test_clients_are_told_the_port_that_the_system_chose() -> None:
    with Cluster(nodes=1) as cluster:
        cluster.stop_node(1)
        config = cluster._configs[1]
        assert config.controller_listener is not None
        quorum = f"CONTROLLER://{config.controller_listener.endpoint}"
        texts = {**dict(config.set_values), "listeners": f"PLAINTEXT://127.0.0.1:0,{quorum}"}
        cluster._configs[1] = ServerConfig({name: value_text(value) or "" for name, value in texts.items()})
        cluster.start_node(1)
        network = cluster._servers[1].network
        assert network is not None
        port = network._acceptors[0][0].port
        metadata = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=30)
        assert port != config.client_listeners[0].port
        assert metadata.brokers[1].port == port
