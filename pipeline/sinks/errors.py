"""What a sink refuses, and why. One line each: Spark shows the last line of a task's traceback."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_TOLD = re.compile(r"No space left on device|Disk quota exceeded|os error (28|122)\b")


class SinkError(Exception):
    """A batch was not written; nothing of it is seen, and it may be tried again."""


class OptionRefused(SinkError, ValueError):
    """An option that cannot be."""


class SchemaChanged(SinkError):
    """The rows do not fit the table."""


class WriteConflict(SinkError):
    """Somebody else changed the table in a way that this commit cannot stand beside."""


class NoSpace(SinkError):
    """The disk is full."""


class TableDamaged(SinkError):
    """What is known of the table cannot be read."""


class ReplayDiffers(SinkError):
    """A batch that came before comes again with other rows."""


class ReplayTooLate(SinkError):
    """A batch comes again, and nobody knows any more whether its rows are there."""


@contextmanager
def space_is_named(path: str) -> Iterator[None]:
    """Turn the system's word for a full disk into a sentence."""
    try:
        yield
    except Exception as error:  # delta-rs and pyarrow have errors of their own, with the system's word inside
        if not (isinstance(error, OSError) and error.errno in FULL) and not _FULL_TOLD.search(str(error)):
            raise
        raise NoSpace(
            f"No space left for {path}: what this attempt wrote is removed; free some, and start again."
        ) from error
