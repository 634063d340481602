"""Cleaned files take the place of the segments they were made from, so that a crash at any moment leaves one or the other.

    .cleaned   being written, or written (and synced) but not decided: removed by recovery
    .swap      decided: the ``.log.swap`` is renamed last of its segment, and from then on recovery finishes the replacement
    .deleted   replaced: removed later, readers may still be in them

Only renames, in an order of which every first part can be recovered, as file systems journal them: whoever serves clients
never waits for the disk here. The directory is synced before anything of the old is unlinked or the checkpoint moves.
A cleaned segment's own end tells which segments it replaces; those behind it, of which nothing was left, go whole or not at all.
After a crash some of them may still be there, as they were: everything that made their records superfluous lies behind them.
"""

from ottla.log.batch import CorruptBatchError
from ottla.log.compaction.output import CleanedSegment
from ottla.log.segments.layout import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    stem,
)
from ottla.log.segments.scan import scan_batches
from ottla.runtime.disk import Disk

_LOG_LAST = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX)
"""That the log has been renamed says that the others have."""
_LOG_FIRST = _LOG_LAST[::-1]
"""Of a segment without a namesake among the new: what is left without a log is nobody's."""


def swap_files(disk: Disk, directory: str, cleaned: CleanedSegment) -> list[str]:
    """``.cleaned`` becomes ``.swap``, the old files ``.deleted``, ``.swap`` gets its final name.

    Returns the paths to unlink later, after a sync of the directory.
    """
    path = stem(directory, cleaned.base_offset)
    for suffix in _LOG_LAST:
        _rename_if_there(disk, path + suffix + CLEANED_SUFFIX, path + suffix + SWAP_SUFFIX)
    condemned: list[str] = []
    for base_offset in cleaned.replaced:
        old = stem(directory, base_offset)
        for suffix in _LOG_LAST if base_offset == cleaned.base_offset else _LOG_FIRST:
            if _rename_if_there(disk, old + suffix, old + suffix + DELETED_SUFFIX):
                condemned.append(old + suffix + DELETED_SUFFIX)
    _finish(disk, directory, cleaned.base_offset)
    return condemned


def recover_swaps(disk: Disk, directory: str) -> None:
    """What recovery does before it opens a segment: finishes decided replacements, removes undecided ones."""
    names = disk.list_directory(directory)
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            disk.unlink(f"{directory}/{name}")
    for name in names:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            _recover_swap(disk, directory, int(name.partition(".")[0]))
    for name in disk.list_directory(directory):
        if name.endswith(SWAP_SUFFIX):  # without its log: nothing was decided
            disk.unlink(f"{directory}/{name}")
    disk.sync_directory(directory)


def _recover_swap(disk: Disk, directory: str, base_offset: int) -> None:
    end_offset = _end_offset(disk, stem(directory, base_offset) + LOG_SUFFIX + SWAP_SUFFIX, base_offset)
    names = disk.list_directory(directory)
    logs = sorted(int(name.removesuffix(LOG_SUFFIX)) for name in names if name.endswith(LOG_SUFFIX))
    if base_offset in logs:
        # An index whose log is gone is the new segment's own, renamed before the crash. So here too the log goes last.
        _unlink(disk, directory, base_offset, _LOG_LAST)
    for old in logs:
        if base_offset < old < end_offset:
            _unlink(disk, directory, old, _LOG_FIRST)
    for name in names:
        number, _, suffix = name.partition(".")
        if f".{suffix}" in SUFFIXES and int(number) > base_offset and int(number) not in logs:
            _unlink_if_there(disk, f"{directory}/{name}")  # its log was condemned before the crash
    _finish(disk, directory, base_offset)


def _unlink(disk: Disk, directory: str, base_offset: int, suffixes: tuple[str, ...]) -> None:
    for suffix in suffixes:
        _unlink_if_there(disk, stem(directory, base_offset) + suffix)


def _unlink_if_there(disk: Disk, path: str) -> None:
    if disk.exists(path):
        disk.unlink(path)


def _end_offset(disk: Disk, path: str, base_offset: int) -> int:
    """Where the segment ends. A damaged one was synced whole, so it was damaged since: what can be read decides."""
    file = disk.open(path, writable=False)
    end_offset = base_offset
    try:
        for _, header, _ in scan_batches(file):
            end_offset = header.next_offset
    except CorruptBatchError:
        pass
    finally:
        file.close()
    return end_offset


def _finish(disk: Disk, directory: str, base_offset: int) -> None:
    path = stem(directory, base_offset)
    for suffix in _LOG_LAST:
        _rename_if_there(disk, path + suffix + SWAP_SUFFIX, path + suffix)


def _rename_if_there(disk: Disk, source: str, target: str) -> bool:
    if not disk.exists(source):
        return False
    disk.rename(source, target)
    return True
