"""What each workload of chaos does where nothing goes wrong: it makes progress, and its history is sound."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.log.batch import headers
from ottla.testing.chaos.workloads import WORKLOADS, Workload
from ottla.testing.checker import Kind
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


def work(cluster: Cluster, name: str, home: Path, seed: int = 7) -> Workload:
    """It made progress, and has stopped."""
    directories = {node: tuple(cluster.log_directories(node)) for node in NODES}
    workload = WORKLOADS[name]()
    workload.prepare(Site(cluster.bootstrap_servers, seed, home, False, directories))
    workload.start()
    wait_for(lambda: workload.operations() >= OPERATIONS, f"{name} to go on")
    workload.stop()
    return workload


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_goes_on_and_finds_nothing_wrong(cluster: Cluster, name: str, tmp_path: Path) -> None:
    workload = work(cluster, name, tmp_path)
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


def test_a_replica_that_lost_its_end_is_found(cluster: Cluster, tmp_path: Path) -> None:
    """What the files say counts, whatever clients are told."""
    workload = work(cluster, "sequences", tmp_path, seed=8)
    [topic] = workload.topics
    copied = tmp_path / "2"
    shutil.copytree(cluster.log_directories(2)[0] / f"{topic}-0", copied / f"{topic}-0")
    [segment] = copied.glob("*/*.log")
    [first, *_] = headers(segment.read_bytes())
    segment.write_bytes(segment.read_bytes()[: first[1].size_bytes])
    directories = {node: tuple(cluster.log_directories(node)) for node in (1, 3)} | {2: (copied,)}
    workload.site = Site(cluster.bootstrap_servers, 8, tmp_path, False, directories)
    workload.finish()
    assert {each.kind for each in workload.check().anomalies} == {Kind.DIVERGED}
