"""Which directories a node starts on."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.directories import read_identity
from ottla.log.directories.checkpoints import MetaProperties
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.settings.definitions import SettingError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from tests.unit.broker.handlers.conftest import Site

PATHS = ("/a", "/b")
CONFIG = Site(log_dirs=",".join(PATHS)).config


@pytest.fixture
def platter() -> Platter:
    platter = Platter.seeded(1)
    disk = SimulatedDisk(platter)
    for number, path in enumerate(PATHS):
        disk.make_directories(path)
        MetaProperties("c", 1, bytes([number + 1]) * 16).write(disk, path)
    return platter


def test_all_directories_that_can_be_read_are_known(platter: Platter) -> None:
    found = read_identity(SimulatedDisk(platter), CONFIG)
    assert (found.cluster_id, found.metadata_directory_id) == ("c", b"\1" * 16)
    assert found.directory_ids == {"/a": b"\1" * 16, "/b": b"\2" * 16}


def test_a_directory_that_cannot_be_read_is_left_out(platter: Platter) -> None:
    platter.fail("/b")
    assert list(read_identity(SimulatedDisk(platter), CONFIG).directory_ids) == ["/a"]


def test_without_the_metadata_logs_directory_nothing_starts(platter: Platter) -> None:
    platter.fail("/a")
    with pytest.raises(SettingError, match="/a cannot be read"):
        read_identity(SimulatedDisk(platter), CONFIG)


def test_a_directory_that_was_not_formatted_is_refused(platter: Platter) -> None:
    SimulatedDisk(platter).unlink("/b/meta.properties")
    with pytest.raises(SettingError, match="/b is not formatted: mount its disk"):
        read_identity(SimulatedDisk(platter), CONFIG)


def test_a_disk_that_cannot_even_tell_that_it_is_there_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XFS that was shut down: to format it anew, as a person was told to, is the last that it needs."""
    paths = [str(tmp_path / name) for name in "ab"]
    for number, path in enumerate(paths):
        os.mkdir(path)
        MetaProperties("c", 1, bytes([number + 1]) * 16).write(RealDisk(), path)
    stat = os.stat

    def shut_down(path: str, **options: Any) -> os.stat_result:
        if str(path).startswith(paths[1]):
            raise OSError(errno.EIO, "Input/output error", path)
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", shut_down)
    assert list(read_identity(RealDisk(), Site(log_dirs=",".join(paths)).config).directory_ids) == paths[:1]
