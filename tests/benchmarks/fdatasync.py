"""The disk's own rate: one block written and fdatasynced, again and again."""

import os
import tempfile
import time


def fdatasyncs_per_second(directory: str | None = None, seconds: float = 1.0) -> float:
    """In a new file, preallocated so that its size does not change, in ``directory``."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        os.posix_fallocate(file.fileno(), 0, 16 << 20)
        os.fsync(file.fileno())
        count, began = 0, time.monotonic()
        while time.monotonic() - began < seconds:
            os.pwrite(file.fileno(), b"x" * 512, count * 512 % (16 << 20))
            os.fdatasync(file.fileno())
            count += 1
        return count / (time.monotonic() - began)
