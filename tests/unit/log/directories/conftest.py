"""What the manager's tests begin with."""

from random import Random

import pytest

from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.runtime.simulation.disk import SimulatedDisk
from tests.unit.log.directories.manager_bench import CONFIG, NOW_MS, Failed, format_directory


@pytest.fixture
def failed() -> Failed:
    """Which directories failed, and what was on them."""
    return []


@pytest.fixture
def manager(disk: SimulatedDisk, failed: Failed) -> LogManager:
    """Two directories, /a and /b."""
    for number, path in enumerate(("/a", "/b"), start=1):
        format_directory(disk, path, number)
    settings = ManagerSettings(cluster_id="c", node_id=1, free_bytes_floor=0)
    manager = LogManager(
        disk,
        ["/a", "/b"],
        CONFIG,
        settings,
        Random(3),
        on_directory_failed=lambda root, lost: failed.append((root, lost)),
    )
    manager.open_all(NOW_MS)
    return manager
