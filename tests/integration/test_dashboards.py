"""The dashboard and the alerts in a real Prometheus, of real nodes."""

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from ottla.testing.ports import free_port_block
from ottla.testing.processes import ProcessCluster, wait_for
from tests.integration.conftest import RECORDS

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".cache" / "tools"
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"

# Series of a cluster that is well, one a metric; `values` in Prometheus' notation for tests: five minutes and more of each.
WELL = {
    'up{job="ottla",instance="a"}': "1x100",
    'kafka_controller_kafkacontroller_activecontrollercount{instance="a"}': "1x100",
    'kafka_controller_kafkacontroller_activecontrollercount{instance="b"}': "0x100",
    'kafka_controller_kafkacontroller_offlinepartitionscount{instance="a"}': "0x100",
    'kafka_server_replicamanager_underminisrpartitioncount{instance="a"}': "0x100",
    'kafka_server_replicamanager_underreplicatedpartitions{instance="a"}': "0x100",
    'kafka_log_logmanager_offlinelogdirectorycount{instance="a"}': "0x100",
    'ottla_log_directory_free_bytes{instance="a",logDirectory="/d"}': "9e9x100",
    'ottla_replication_damaged_partitions{instance="a"}': "0x100",
    'ottla_transaction_coordinator_open_seconds_max{instance="a"}': "30x100",
    'ottla_loop_turn_seconds{instance="a",quantile="1"}': "0.02x100",
}
ILL = {
    "NodeDown": ('up{job="ottla",instance="a"}', "0x100"),
    "NoActiveController": ('kafka_controller_kafkacontroller_activecontrollercount{instance="a"}', "0x100"),
    "PartitionsOffline": ('kafka_controller_kafkacontroller_offlinepartitionscount{instance="a"}', "3x100"),
    "UnderMinIsr": ('kafka_server_replicamanager_underminisrpartitioncount{instance="a"}', "1x100"),
    "UnderReplicated": ('kafka_server_replicamanager_underreplicatedpartitions{instance="a"}', "7x100"),
    "DirectoryFailed": ('kafka_log_logmanager_offlinelogdirectorycount{instance="a"}', "1x100"),
    "DiskFills": ('ottla_log_directory_free_bytes{instance="a",logDirectory="/d"}', "1e9x100"),
    "DamagedReplica": ('ottla_replication_damaged_partitions{instance="a"}', "1x100"),
    "LongTransaction": ('ottla_transaction_coordinator_open_seconds_max{instance="a"}', "1000x100"),
    "SlowLoop": ('ottla_loop_turn_seconds{instance="a",quantile="1"}', "1.5x100"),
}
"""The one series that differs when the alert is to come."""


def promtool(*arguments: str) -> str:
    tool = TOOLS / "promtool"
    assert tool.exists(), "promtool is missing: `make test-tools` fetches it"
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_alert_comes_when_its_series_is_ill_and_only_then(tmp_path: Path) -> None:
    promtool("check", "rules", "--lint=all", str(RULES))
    assert set(re.findall(r"- alert: (\w+)", RULES.read_text("utf-8"))) == set(ILL)
    tests = [_case({}, dict.fromkeys(ILL, False))]
    tests += [_case({series: values}, {alert: alert == ill for alert in ILL}) for ill, (series, values) in ILL.items()]
    (tmp_path / "tests.yml").write_text(
        json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "10s", "tests": tests}), "utf-8"
    )
    promtool("test", "rules", str(tmp_path / "tests.yml"))


def _case(differs: dict[str, str], expected: dict[str, bool]) -> dict[str, Any]:
    """Of promtool's unit tests (YAML, of which JSON is a part): how many of each alert fire after a quarter of an hour."""
    series = [{"series": name, "values": values} for name, values in (WELL | differs).items()]
    count = 'count(ALERTS{{alertname="{}",alertstate="firing"}}) or vector(0)'
    asked = [
        {"expr": count.format(alert), "eval_time": "15m", "exp_samples": [{"labels": "{}", "value": int(fires)}]}
        for alert, fires in expected.items()
    ]
    return {"interval": "10s", "input_series": series, "promql_expr_test": asked}


class Prometheus:
    """A real one, which asks the cluster's nodes each second."""

    def __init__(self, home: Path, cluster: ProcessCluster) -> None:
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [
                {
                    "job_name": "ottla",
                    "static_configs": [{"targets": [node.metrics_listener for node in cluster.nodes]}],
                }
            ],
        }
        file = home / "prometheus.yml"
        file.write_text(json.dumps(config), "utf-8")
        promtool("check", "config", str(file))
        self._address = f"127.0.0.1:{free_port_block(1, (0,))}"
        command = [
            f"--config.file={file}",
            f"--storage.tsdb.path={home / 'series'}",
            f"--web.listen-address={self._address}",
        ]
        with (home / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen([TOOLS / "prometheus", *command], stdout=log, stderr=log)

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Its series now; none as long as it does not answer."""
        url = f"http://{self._address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                series: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error
        except urllib.error.URLError:
            return []
        return series

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@pytest.fixture
def prometheus(cluster: ProcessCluster, tmp_path: Path) -> Iterator[Prometheus]:
    running = Prometheus(tmp_path, cluster)
    yield running
    running.end()


def panels() -> dict[str, str]:
    """What each panel of the dashboard asks, by its title."""
    shown = json.loads((DEPLOY / "grafana" / "dashboards" / "ottla.json").read_text("utf-8"))["panels"]
    return {
        f"{panel['title']}, {at}": each["expr"] for panel in shown for at, each in enumerate(panel.get("targets", ()))
    }


def test_every_panel_shows_what_nodes_say(cluster: ProcessCluster, prometheus: Prometheus, filled: str) -> None:
    bootstrap = {"bootstrap.servers": cluster.bootstrap_servers}
    settings = {"group.id": f"{filled}-panels", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    reader = Consumer(bootstrap | settings)
    reader.subscribe([filled])
    assert len(reader.consume(RECORDS, 30)) == RECORDS
    reader.commit(asynchronous=False)
    reader.close()
    empty = panels()

    def all_show() -> bool:
        for title in [title for title, query in empty.items() if prometheus.ask(query)]:
            del empty[title]
        return not empty

    try:
        wait_for(all_show, "every panel to show something")
    except TimeoutError:
        raise AssertionError(f"nothing to see in {empty}") from None
