"""The few calls of the C library that Python's ``os`` lacks. Loaded at first use: ctypes costs start-up time."""

import ctypes
import errno
import functools
import os
from collections.abc import Callable

_FALLOC_FL_KEEP_SIZE = 1
_SYNC_FILE_RANGE_WRITE = 2
_MADV_DONTNEED = 4
_PREALLOCATION_IS_OPTIONAL = (errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EINTR)


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def _function(name: str, *argument_types: type) -> Callable[..., int] | None:
    """The library's function, or None where this C library does not have it."""
    try:
        function = getattr(_library(), name)
    except AttributeError:
        return None
    function.argtypes = argument_types
    function.restype = ctypes.c_int
    found: Callable[..., int] = function
    return found


def preallocate(descriptor: int, offset: int, length: int) -> None:
    """fallocate(KEEP_SIZE). A hint: silence where there is no support or no room; OSError for anything worse."""
    fallocate = _function("fallocate", ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if fallocate is None or fallocate(descriptor, _FALLOC_FL_KEEP_SIZE, offset, length) == 0:
        return
    number = ctypes.get_errno()
    if number not in _PREALLOCATION_IS_OPTIONAL:
        raise OSError(number, os.strerror(number))


def start_writeback(descriptor: int, offset: int, length: int) -> None:
    """sync_file_range(WRITE): asks for write-back of the range and waits for nothing. Errors show at the next sync."""
    sync_file_range = _function("sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    if sync_file_range is not None:
        sync_file_range(descriptor, offset, length, _SYNC_FILE_RANGE_WRITE)


def sync_file_system(descriptor: int) -> None:
    """syncfs(2): writes back the whole file system the descriptor is on, and waits. OSError when something could not be written."""
    syncfs = _function("syncfs", ctypes.c_int)
    if syncfs is None:
        os.sync()  # a C library without it: all file systems, and errors unseen
    elif syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def set_malloc_option(option: int, value: int) -> bool:
    """mallopt(3); False where the C library refuses or has none."""
    mallopt = _function("mallopt", ctypes.c_int, ctypes.c_int)
    return mallopt is not None and mallopt(option, value) == 1


def let_go_of_mapped(path: str) -> None:
    """madvise(DONTNEED) for whatever of the file this process mapped to share it: its pages leave the process, not the system's cache, and come
    back when they are read. A hint."""
    madvise = _function("madvise", ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            lines = [line for line in maps if line.endswith(f" {path}\n")]
    except OSError:
        return  # not Linux
    for line in lines:
        addresses, modes, *_ = line.split(maxsplit=2)
        start, end = (int(each, 16) for each in addresses.split("-"))
        if madvise is not None and modes.endswith("s"):  # what is private would be lost
            madvise(start, end - start, _MADV_DONTNEED)
