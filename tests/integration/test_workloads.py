"""What each workload of chaos does where nothing goes wrong: it makes progress, and its history is sound."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.testing.chaos.workloads import WORKLOADS
from ottla.testing.checker.history import read
from ottla.testing.checker.operations import Read
from ottla.testing.cluster import Cluster
from ottla.testing.processes import wait_for

NODES = (1, 2, 3)
OPERATIONS = 60


class Site(NamedTuple):
    bootstrap_servers: str
    seed: int
    directory: Path
    unclean: bool
    data_directories: dict[int, tuple[Path, ...]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3) as running:
        yield running


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_goes_on_and_finds_nothing_wrong(cluster: Cluster, name: str, tmp_path: Path) -> None:
    directories = {node: tuple(cluster.log_directories(node)) for node in NODES}
    workload = WORKLOADS[name]()
    workload.prepare(Site(cluster.bootstrap_servers, 7, tmp_path, False, directories))
    workload.start()
    wait_for(lambda: workload.operations() >= OPERATIONS, f"{name} to go on")
    workload.stop()
    workload.finish()
    report = workload.check()
    assert report.valid, str(report)
    assert report.operations >= OPERATIONS
    replicas = {
        each.operation.replica
        for each in read(workload.path)
        if isinstance(each.operation, Read) and each.operation.final
    }
    assert replicas == ({-1, *NODES} if workload.topics else set())
