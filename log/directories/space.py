"""Whether a log directory is there, and has room: below the floor it takes no more data."""

import logging

from ottla.log.directories import roots
from ottla.log.directories.directory import DirectoryState
from ottla.runtime.disk import Disk

_logger = logging.getLogger(__name__)


def has_changed(disk: Disk, root: DirectoryState, floor: int) -> bool:
    """Looks, and tells the directory; True if it is full now, or takes data again. ``floor``: bytes that stay free; 0 turns that off."""
    try:
        roots.check_presence(disk, root.path)
        free = root.free_bytes = disk.free_bytes(root.path)
    except OSError as error:
        root.failed(error)
        return False
    # A little above the floor before it takes data again, or it would flutter with every deleted segment.
    full = free < (floor + floor // 8 if root.full else floor) or (root.full and floor == 0 and free == 0)
    if full == root.full and root.writable is not full:
        if not full:
            root.refusals.went_well()
        return False
    if not full and not root.refusals.may_try(free):
        return False
    root.set_full(full)
    what = "takes no more data until there is more room" if full else "takes data again"
    _logger.warning("%s: %d MB free, ottla.free.bytes.floor is %d MB: %s", root.path, free >> 20, floor >> 20, what)
    return True
