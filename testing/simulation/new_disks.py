"""A disk that comes in the place of another, formatted for the same node."""

from random import Random

from ottla.log.directories.checkpoints import MetaProperties
from ottla.runtime.identifiers import random_id
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter


def renew(platter: Platter, told_by: str, path: str, rng: Random) -> None:
    """The directory ``path`` is empty, and has another id. ``told_by``: where it stands which node's it is."""
    disk = SimulatedDisk(platter)
    meta = MetaProperties.read(disk, told_by)
    assert meta is not None
    if disk.exists(path):
        disk.remove_tree(path)
    disk.make_directories(path)
    disk.sync_directory("/")
    meta._replace(directory_id=random_id(rng)).write(disk, path)
