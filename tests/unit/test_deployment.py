"""What stands in deploy/ fits the program: every query asks for metrics that a node has, every variable sets a setting."""

import json
import re
from pathlib import Path

import pytest

from ottla.broker.metrics.node import AREAS
from ottla.runtime.settings.definitions import server_settings
from ottla.runtime.settings.properties import from_environment, parse_properties

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
