"""The manifests by the schema of Kubernetes' API, and what a pod becomes of them."""

import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from ottla.runtime.settings.server import ServerConfig

DEPLOY = Path(__file__).parents[2] / "deploy"
RESOURCES: dict[str, dict[str, Any]] = {
    f"{resource['kind']} {resource['metadata']['name']}": resource
    for path in sorted((DEPLOY / "kubernetes").glob("*s.yaml"))
    for resource in yaml.safe_load_all(path.read_text("utf-8"))
}


@pytest.mark.parametrize("version", ["1.27", "1.37"])
@pytest.mark.parametrize("name", RESOURCES)
def test_a_manifest_has_what_the_api_knows_and_nothing_else(name: str, version: str) -> None:
    kubernetes_validate.validate(RESOURCES[name], version, strict=True)


def container(role: str) -> dict[str, Any]:
    [container] = RESOURCES[f"StatefulSet {role}"]["spec"]["template"]["spec"]["containers"]
    return dict(container)


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_a_pod_becomes_a_node_of_its_own_number_and_role(role: str, tmp_path: Path) -> None:
    """Its command is run as written, with an entrypoint that only tells what it was given."""
    (tmp_path / "entrypoint").write_text("#!/bin/sh\nenv\n")
    (tmp_path / "entrypoint").chmod(0o755)
    made = container(role)
    given = {each["name"]: each["value"] for each in made["env"]}
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOSTNAME": f"{role}-2"} | given
    told = subprocess.run(
        [*made["command"], *made["args"]], env=environment, capture_output=True, text=True, check=True
    )
    becomes = dict(line.split("=", 1) for line in told.stdout.splitlines() if "=" in line)
    config = ServerConfig.load(DEPLOY / "server.properties", becomes)
    assert (config.node_id, config.is_broker, config.is_controller) == (
        (13, True, False) if role == "broker" else (3, False, True)
    )
    if role == "broker":
        assert {each.host for each in config.advertised_listeners} == {"broker-2.broker.ottla.svc"}


def test_the_disruption_budgets_and_the_pods_mean_the_same_nodes() -> None:
    for role in ("broker", "controller"):
        labels = RESOURCES[f"StatefulSet {role}"]["spec"]["template"]["metadata"]["labels"]
        for selector in (
            RESOURCES[f"PodDisruptionBudget {role}"]["spec"]["selector"]["matchLabels"],
            RESOURCES[f"Service {role}"]["spec"]["selector"],
            RESOURCES[f"StatefulSet {role}"]["spec"]["selector"]["matchLabels"],
        ):
            assert selector == labels
