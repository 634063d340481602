"""A machine's disk as it was: what somebody puts back who has only an old copy."""

from collections.abc import Mapping

from ottla.runtime.simulation.directory import Directory, Journal
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.inode import Inode
from ottla.runtime.simulation.platter import Platter

Backup = Mapping[str, bytes | None]
"""Contents by path; None: a directory. Parents come before what is in them."""


def back_up(platter: Platter) -> Backup:
    """A copy of all there is, as a program would see it now."""
    found: dict[str, bytes | None] = {}
    waiting = [("", platter.root)]
    while waiting:
        path, directory = waiting.pop()
        for name, entry in sorted(directory.entries.items()):
            below = f"{path}/{name}"
            if isinstance(entry, Inode):
                found[below] = bytes(entry.data)
            else:
                found[below] = None
                waiting.append((below, entry))
    return found


def put_back(platter: Platter, backup: Backup) -> None:
    """The disk holds that and nothing else, durably. No process may run on it."""
    platter.close_sessions()
    platter.root, platter.journal, platter.used_bytes = Directory(), Journal(), 0
    disk = SimulatedDisk(platter)
    for path, data in backup.items():
        if data is None:
            disk.make_directories(path)
        else:
            disk.open(path, create=True).write_at([data], 0)
    platter.sync_everything()
