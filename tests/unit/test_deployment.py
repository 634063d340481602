"""What stands in deploy/ fits the program: every query asks for metrics that a node has, every variable sets a setting."""

import json
import re
from pathlib import Path

import pytest
import yaml

from ottla.broker.metrics.node import AREAS
from ottla.runtime.settings.definitions import server_settings
from ottla.runtime.settings.properties import from_environment, parse_properties
from ottla.runtime.settings.server import ServerConfig

DEPLOY = Path(__file__).parents[2] / "deploy"
METRIC = re.compile(r"\b(?:kafka|ottla)_[a-z0-9_]+")
METRICS = {metric.name: metric for area in AREAS for metric in area.metrics}


def queries() -> list[str]:
    panels = json.loads((DEPLOY / "grafana/dashboards/ottla.json").read_text(encoding="utf-8"))["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    alerts = (DEPLOY / "prometheus/alerts.yml").read_text(encoding="utf-8")
    return asked + re.findall(r"expr: (.*)", alerts)


@pytest.mark.parametrize("query", queries())
def test_a_query_asks_for_what_there_is(query: str) -> None:
    names = METRIC.findall(query)
    assert names or query.startswith("up{")
    assert [name for name in names if name not in METRICS] == []
    for name, labels in re.findall(r"([a-z0-9_]+)\{([^}]*)\}", query):
        if name in METRICS:
            assert set(re.findall(r"(\w+)=", labels)) <= set(METRICS[name].labels)
    for labels in re.findall(r"by \(([^)]*)\)", query):
        known = {label for name in names for label in METRICS[name].labels} | {"instance"}
        assert set(labels.split(", ")) <= known


def test_every_panel_asks_something() -> None:
    assert len(queries()) > 30


@pytest.mark.parametrize(
    "path", [path for path in DEPLOY.rglob("*.y*ml") if "KAFKA_" in path.read_text(encoding="utf-8")], ids=str
)
def test_every_variable_sets_a_setting(path: Path) -> None:
    names = re.findall(r"KAFKA_[A-Z_]+", path.read_text(encoding="utf-8"))
    assert set(from_environment(dict.fromkeys(names, ""))) <= set(server_settings())


def test_the_images_properties_are_settings() -> None:
    text = (DEPLOY / "server.properties").read_text(encoding="utf-8")
    assert set(parse_properties(text, "server.properties")) <= set(server_settings())


def chaos_nodes() -> dict[str, ServerConfig]:
    """The nodes of the profile chaos, by the names under which they are in its network."""
    services = yaml.safe_load((DEPLOY / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    image = parse_properties((DEPLOY / "server.properties").read_text(encoding="utf-8"), "server.properties")
    found = {}
    for name, service in services.items():
        if service.get("profiles") == ["chaos"] and name != "chaos":
            assert service["networks"] == ["chaos"]
            own = from_environment({key: str(value) for key, value in service["environment"].items()})
            found[name] = ServerConfig({**image, **own})
    return found


def address(name: str, config: ServerConfig) -> str:
    """Where its peers look for it: each has one listener for them."""
    if config.is_controller:
        return str(config.voters[config.node_id])
    assert config.inter_broker_listener.host == name
    return str(config.inter_broker_listener.endpoint)


def chaos_proxies() -> dict[int, str]:
    """What is behind each port of the service chaos."""
    proxies = json.loads((DEPLOY / "toxiproxy.json").read_text(encoding="utf-8"))
    assert all(each["enabled"] and each["listen"].startswith("0.0.0.0:") for each in proxies)
    assert len({each["name"] for each in proxies}) == len(proxies)
    ports = {int(each["listen"].rpartition(":")[2]): each["upstream"] for each in proxies}
    assert len(ports) == len(proxies)
    return ports


def test_in_the_profile_chaos_every_node_reaches_every_other_by_a_proxy_of_that_way_alone() -> None:
    nodes, proxies = chaos_nodes(), chaos_proxies()
    assert len(nodes) == 6
    used = []
    for name, config in nodes.items():
        detours = {str(wanted): instead for wanted, instead in config.detours.items()}
        others = {address(other, nodes[other]) for other in nodes if other != name}
        assert set(detours) == others
        assert all(instead.host == "chaos" and proxies[instead.port] == wanted for wanted, instead in detours.items())
        used += [instead.port for instead in detours.values()]
    assert len(used) == len(set(used)) == 6 * 5


def test_in_the_profile_chaos_clients_reach_each_broker_by_a_proxy_that_is_published() -> None:
    services = yaml.safe_load((DEPLOY / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    proxies, brokers = chaos_proxies(), {name: each for name, each in chaos_nodes().items() if each.is_broker}
    assert len(brokers) == 3
    for name, config in brokers.items():
        told = next(each for each in config.advertised_listeners if each.name == "HOST")
        own = next(each for each in config.client_listeners if each.name == "HOST")
        assert f"{told.port}:{told.port}" in services["chaos"]["ports"]
        assert proxies[told.port] == f"{name}:{own.port}"
        assert "ports" not in services[name]
