"""A real Toxiproxy server for all chaos tests, and a three-node cluster behind it for each that asks."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing.chaos.cluster import ChaosCluster
from ottla.testing.chaos.matrix import today
from ottla.testing.chaos.proxies import ProxyServer

SEED = int(os.environ.get("CHAOS_SEED") or today())
SERVER = Path(__file__).resolve().parents[2] / ".cache" / "tools" / "toxiproxy-server"


@pytest.fixture(scope="session")
def toxiproxy() -> Iterator[ProxyServer]:
    with ProxyServer(SERVER) as server:
        yield server


@pytest.fixture
def proxied(toxiproxy: ProxyServer, tmp_path: Path) -> Iterator[ChaosCluster]:
    with ChaosCluster(toxiproxy, tmp_path) as cluster:
        yield cluster


def pytest_configure(config: pytest.Config) -> None:
    """kafka-python and aiokafka leave sockets to the garbage collector; that is not what these tests are about."""
    for category in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{category}")


def pytest_report_header() -> str:
    return f"cells of the chaos matrix: CHAOS_SEED={SEED}"
