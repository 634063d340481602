"""A real Toxiproxy server for all chaos tests, and a three-node cluster behind it for each that asks."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing.processes import free_port_block, wait_for
from ottla.testing.toxiproxy import ProxiedCluster, Toxiproxy

SERVER = Path(__file__).resolve().parents[2] / ".cache" / "tools" / "toxiproxy-server"


@pytest.fixture(scope="session")
def toxiproxy() -> Iterator[Toxiproxy]:
    assert SERVER.exists(), f"{SERVER.name} is missing: `make test-tools` builds it"
    port = free_port_block(1)
    command = [str(SERVER), "-host", "127.0.0.1", "-port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    proxy = Toxiproxy(port)
    wait_for(proxy.is_up, "toxiproxy to answer")
    yield proxy
    process.terminate()
    process.wait(10)


@pytest.fixture
def proxied(toxiproxy: Toxiproxy) -> Iterator[ProxiedCluster]:
    with ProxiedCluster(toxiproxy) as cluster:
        yield cluster


def pytest_configure(config: pytest.Config) -> None:
    """kafka-python and aiokafka leave sockets to the garbage collector; that is not what these tests are about."""
    for category in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{category}")
