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
from ottla.log.compaction.output import CLEANED_SUFFIX, CleanedSegment
from ottla.log.segments import transactions
from ottla.log.segments.scan import scan_batches
from ottla.log.tools.dump import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from ottla.runtime.disk import Disk

SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"
# The log last: that it has been renamed says that the others have.
SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, transactions.SUFFIX, LOG_SUFFIX)
_LOG_FIRST = SUFFIXES[::-1]
"""Of a segment without a namesake among the new: what is left without a log is nobody's."""


def swap_files(disk: Disk, directory: str, cleaned: CleanedSegment) -> list[str]:
    """``.cleaned`` becomes ``.swap``, the old files ``.deleted``, ``.swap`` gets its final name.

    Returns the paths to unlink later, after a sync of the directory.
    """
    stem = _stem(directory, cleaned.base_offset)
    for suffix in SUFFIXES:
        _rename_if_there(disk, stem + suffix + CLEANED_SUFFIX, stem + suffix + SWAP_SUFFIX)
    condemned: list[str] = []
    for base_offset in cleaned.replaced:
        old = _stem(directory, base_offset)
        for suffix in SUFFIXES if base_offset == cleaned.base_offset else _LOG_FIRST:
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
    end_offset = _end_offset(disk, _stem(directory, base_offset) + LOG_SUFFIX + SWAP_SUFFIX, base_offset)
    names = disk.list_directory(directory)
    logs = sorted(int(name.removesuffix(LOG_SUFFIX)) for name in names if name.endswith(LOG_SUFFIX))
    if base_offset in logs:
        # An index whose log is gone is the new segment's own, renamed before the crash. So here too the log goes last.
        _unlink(disk, directory, base_offset, SUFFIXES)
    for old in logs:
        if base_offset < old < end_offset:
            _unlink(disk, directory, old, _LOG_FIRST)
    for name in names:
        stem, _, suffix = name.partition(".")
        if f".{suffix}" in SUFFIXES and int(stem) > base_offset and int(stem) not in logs:
            _unlink_if_there(disk, f"{directory}/{name}")  # its log was condemned before the crash
    _finish(disk, directory, base_offset)


def _unlink(disk: Disk, directory: str, base_offset: int, suffixes: tuple[str, ...]) -> None:
    for suffix in suffixes:
        _unlink_if_there(disk, _stem(directory, base_offset) + suffix)


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
    stem = _stem(directory, base_offset)
    for suffix in SUFFIXES:
        _rename_if_there(disk, stem + suffix + SWAP_SUFFIX, stem + suffix)


def _rename_if_there(disk: Disk, source: str, target: str) -> bool:
    if not disk.exists(source):
        return False
    disk.rename(source, target)
    return True


def _stem(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_offset:020d}"
