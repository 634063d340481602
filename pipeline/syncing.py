"""What makes a file outlive the machine's power."""

import errno
import os

WITHOUT_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EACCES)
"""What is said where a folder cannot be synced: there names are safe by themselves, or by nothing."""


def sync(path: str | os.PathLike[str]) -> None:
    """A file's contents, or a folder's names. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: str | os.PathLike[str]) -> None:
    """The names in it, where there is such a thing."""
    try:
        sync(path)
    except OSError as error:
        if error.errno not in WITHOUT_FOLDERS:
            raise
