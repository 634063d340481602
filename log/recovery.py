"""Opening a log: after a clean shutdown it is taken as it is; after a crash what may be torn is read, batch by batch.

The first bad byte ends the log: the file is cut there and later segments go. Everything below the recovery point was synced and
is not scanned; an index that is missing or wrong is rebuilt when it is used. Source: Kafka's LogLoader (kraft.md 4.5).
"""

import logging
from collections.abc import Iterator
from functools import partial

from ottla.log import aborted, gaps, replay, truncation
from ottla.log.batch import BatchHeader, CorruptBatchError, read_header
from ottla.log.compaction.swap import recover_swaps
from ottla.log.directories import roots
from ottla.log.directories.checkpoints import CheckpointError, read_epochs
from ottla.log.durable_log import DurableLog
from ottla.log.errors import NO_ROOM, DamagedLogError
from ottla.log.producers import snapshot as producer_snapshot
from ottla.log.segments.files import segment_size
from ottla.log.segments.index import IndexCorruptError
from ottla.log.segments.layout import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    RELATIVE_OFFSET_MAX,
    SUFFIXES,
    SWAP_SUFFIX,
    base_offset_of,
    stem,
)
from ottla.log.segments.segment import Segment
from ottla.log.segments.soundness import Expectation, sound_prefix
from ottla.runtime.disk import Disk, File

_logger = logging.getLogger(__name__)

_PIECE_BYTES = 4 << 20
_YOUNG_BYTES_MAX = 64 << 20
"""A larger log without a recovery point has lost it: most of what it has was synced long ago."""
_IDLE_INDEX_ENTRIES = 256  # a log that was only opened keeps no larger index in memory


def recover(
    log: DurableLog,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
    *,
    clean: bool,
    topic_id: bytes | None,
    stable_offset: int,
    high_watermark: int,
) -> None:
    """Fills an empty log with what its directory holds. OSError passes through."""
    new = not log.disk.exists(log.directory)
    if new:
        log.disk.make_directories(log.directory)
        log.names_changed(created=True)
    names = [] if new else _sweep(log.disk, log.directory)
    if roots.MOVED in names:  # where to is gone: this is the log again, and stays it should that come back
        log.disk.unlink(f"{log.directory}/{roots.MOVED}")
        log.names_changed()
    log.gaps_marked = gaps.MARKER in names
    log.gaps_allowed = log.gaps_allowed or log.gaps_marked
    log.topic_id = topic_id if topic_id or new else roots.read_topic_id(log.disk, log.directory)
    if not clean:
        log.distrust_names()
    bases = _sweep_orphans(log, names)
    scanned_from = log_start_offset
    # Who ran before may have cut index entries and not lived to sync that: a power cut would bring them back.
    log.root.cuts_unsynced = log.root.cuts_unsynced or not (new or clean)
    if bases and log.gaps_allowed:
        log.silent_ms = max(now_ms - log.disk.modified_ms(stem(log.directory, bases[-1]) + LOG_SUFFIX), 0)
    if not bases:
        _create_first(log, log_start_offset)
    else:
        scanned_from = _recover_segments(log, bases, recovery_point, log_start_offset, stable_offset, clean=clean)
    _check_stable(log.directory, 0, log.log_end_offset, stable_offset)
    log.root.lower_recovery_point(log.key, log.recovery_point)
    if log.root.saved_gaps_offset(log.key) > log.log_end_offset:
        # Of a disk that lost what was stable: what comes to those offsets now is another's, and neither clean nor stable.
        log.root.before_truncation({log.key: log.log_end_offset})
    replay_from = _load_producers(log) if _have_snapshots(names) else _forget_producers(log)
    if scanned_from < replay_from:  # the snapshot knows how these transactions ended, not their index
        aborted.restore(log, scanned_from, replay_from)
    truncation.replay_producers(log, replay_from)
    log.high_watermark = log.log_start_offset
    log.set_high_watermark(high_watermark)
    replay.restore_unreplicated(log, replay_from, log.high_watermark)
    log.set_roll_time()
    if log.active.is_begun and len(log.active.offset_index().offsets) > _IDLE_INDEX_ENTRIES:
        log.active.forget_indexes()


def _have_snapshots(names: list[str]) -> bool:
    return any(name.endswith(producer_snapshot.SUFFIX) for name in names)


def _load_producers(log: DurableLog) -> int:
    """As `truncation.load_producers`; then the latest snapshot is sound, and older ones are of use where a segment begins.

    What was taken beyond the end goes durably: once the log is as long again, nobody could tell that it is of another past.
    """
    found = producer_snapshot.offsets(log.disk, log.directory)
    replay_from = truncation.load_producers(log)
    if found and found[-1] > log.log_end_offset:
        log.disk.sync_directory(log.directory)
    producer_snapshot.remove_strays(log.disk, log.directory, [segment.base_offset for segment in log.segments])
    return replay_from


def _forget_producers(log: DurableLog) -> int:
    """Where there is no snapshot, all of the log is replayed."""
    log.producers.clear()
    return log.segments[0].base_offset


def _sweep(disk: Disk, directory: str) -> list[str]:
    """Finishes or undoes what a crash interrupted; returns the names that remain."""
    names = disk.list_directory(directory)
    interrupted = [name for name in names if name.endswith((DELETED_SUFFIX, ".tmp", CLEANED_SUFFIX, SWAP_SUFFIX))]
    if not interrupted:
        return names
    for name in interrupted:
        if name.endswith((DELETED_SUFFIX, ".tmp")):
            disk.unlink(f"{directory}/{name}")
    if any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in interrupted):
        recover_swaps(disk, directory)
    return disk.list_directory(directory)


def _sweep_orphans(log: DurableLog, names: list[str]) -> list[int]:
    """The base offsets of the segments, rising. Indexes without batches are removed."""
    bases = [base for name in names if (base := base_offset_of(name)) is not None]
    numbers = {name.removesuffix(LOG_SUFFIX): None for name in names if name.endswith(LOG_SUFFIX)}
    for name in names:
        number, dot, suffix = name.partition(".")
        if dot + suffix in SUFFIXES and number not in numbers:
            log.disk.unlink(f"{log.directory}/{name}")
    return sorted(bases)


def _create_first(log: DurableLog, log_start_offset: int) -> None:
    """An empty log. That it begins elsewhere than at 0 only the name of its segment says; else the first batch makes the files."""
    segment = Segment(log.files, log.directory, log_start_offset, log.config)
    if log_start_offset:
        segment.create_files()
        log.names_changed()
    else:
        segment.is_begun = False
    log.set_segments([segment])
    log.log_start_offset = log.log_end_offset = log.recovery_point = log_start_offset


def _recover_segments(
    log: DurableLog, bases: list[int], recovery_point: int, log_start_offset: int, stable_offset: int, *, clean: bool
) -> int:
    """Returns the offset from which on the indexes were made anew."""
    log.set_segments(
        [
            Segment(
                log.files,
                log.directory,
                base,
                log.config,
                segment_size(log.disk, stem(log.directory, base) + LOG_SUFFIX),
            )
            for base in bases
        ]
    )
    _drop_orphans(log)
    _restore_epochs(log)
    if clean:
        end, scanned_from = _clean_end(log)
        log.recovery_point = end
    else:
        end, scanned_from = _scan(log, recovery_point, stable_offset)
        if end < recovery_point:
            # What was stable does not go: this point is of another log, or the disk is not what it was. All may be torn.
            recovery_point = 0
            if scanned_from > bases[0]:
                end, scanned_from = _scan(log, 0, stable_offset)
        log.recovery_point = min(recovery_point, end)
    log.log_end_offset = end
    log.log_start_offset = max(log_start_offset, bases[0])
    if end < log.log_start_offset:
        truncation.begin_anew_at(log, log.log_start_offset)
    log.epochs.truncate_from_end(log.log_end_offset)
    log.epochs.truncate_from_start(log.log_start_offset)
    _restore_first_epochs(log)
    return scanned_from


def _drop_orphans(log: DurableLog) -> None:
    """Empty segments that the one before has gone past: of rolls that could neither be finished nor undone."""
    for segment in reversed(log.segments[1:]):
        before = log.segments[log.segments.index(segment) - 1]
        if not segment.size and _ends_behind(before, segment.base_offset):
            _logger.warning("%s is of a roll that failed: removed", segment.path)
            segment.unlink()
            log.disk.sync_directory(log.directory)
            log.set_segments([each for each in log.segments if each is not segment])


def _ends_behind(segment: Segment, offset: int) -> bool:
    try:
        return segment.find(offset)[1] >= 0
    except DamagedLogError:
        return False  # what is damaged is looked at by the scan, or by whoever reads it


def _restore_first_epochs(log: DurableLog) -> None:
    """The epochs of the log's beginning, where the checkpoint knew a later log start than the one that survived."""
    entries = log.epochs.entries()
    known_from = entries[0][1] if entries else log.log_end_offset
    if log.log_start_offset >= known_from:
        return
    found, end = list[tuple[int, int]](), log.log_start_offset
    for header in _headers_between(log, log.log_start_offset, known_from):
        if header.leader_epoch > (found[-1][0] if found else -1):
            found.append((header.leader_epoch, end))
        end = header.next_offset
    last_epoch = found[-1][0] if found else -1
    log.set_epochs((*found, *(entry for entry in entries if entry[0] > last_epoch)))


def _headers_between(log: DurableLog, start_offset: int, end_offset: int) -> Iterator[BatchHeader]:
    """Headers of the batches that hold anything of [start, end); ends early at damage."""
    try:
        for segment in log.segments[log.segments.index(log.segment_of(start_offset)) :]:
            for _, header in segment.walk_from(segment.find(start_offset)[0]):
                if header.base_offset >= end_offset:
                    return
                yield header
    except DamagedLogError:
        return


def _restore_epochs(log: DurableLog) -> None:
    try:
        log.set_epochs(read_epochs(log.disk, log.directory))
    except CheckpointError:
        log.set_epochs(())
        end = log.segments[0].base_offset
        for segment in log.segments:
            end = _note_epochs(log, segment, end)


def _note_epochs(log: DurableLog, segment: Segment, end: int) -> int:
    """Epochs from the batch headers, for want of a checkpoint that can be read. ``end``: of what is before; returns the segment's."""
    try:
        for _, header in segment.walk_from(0):
            log.note_epoch(header.leader_epoch, end)
            end = header.next_offset
    except DamagedLogError:
        return end
    return end


def _clean_end(log: DurableLog) -> tuple[int, int]:
    """Where a log that was closed ends, said as `_scan` says it. Only if the last segment is not whole after all, it is scanned."""
    try:
        end = log.active.load_tail(gaps_allowed=log.gaps_allowed)
        return end, end
    except DamagedLogError:
        return _scan(log, log.active.base_offset, 0)


def _scan(log: DurableLog, recovery_point: int, stable_offset: int) -> tuple[int, int]:
    """Checks every batch from ``recovery_point`` on, cuts the log at the first bad one, but not below ``stable_offset``.

    Returns the log end offset, and the offset from which on it was scanned and its indexes were made anew.
    """
    segments = log.segments
    gaps_to = log.root.saved_gaps_offset(log.key)
    if recovery_point:  # nothing above it was cleaned: what says so is of a log that an older node cut since
        gaps_to = min(gaps_to, recovery_point)
    first = segments.index(log.segment_of(recovery_point))
    end = scanned_from = segments[first].base_offset
    epoch = -1
    anew = recovery_point > 0 or sum(each.size for each in segments) <= _YOUNG_BYTES_MAX
    if first and end >= recovery_point:
        _complete_index(segments[first - 1])
    for number in range(first, len(segments)):
        segment = segments[number]
        lost = max(end, gaps_to) < segment.base_offset <= end + RELATIVE_OFFSET_MAX
        if segment.base_offset < end or (number > first and lost):
            # A segment lost its end, at a batch boundary by chance, or it is from before a truncation. Gaps that reach
            # the end of a segment are what compaction made, or too wide for relative offsets.
            _check_stable(segment.path, 0, end, stable_offset)
            _drop_from(log, number)
            break
        log.unsettled((segment,))
        start = _scan_start(segment, recovery_point)
        if segment.transactions().has_file:
            log.aborts_changed(segment)
        if number == first:
            scanned_from = start[1]
        end, position, epoch = _scan_segment(log, segment, start, end, epoch, anew=anew)
        if position < segment.size:
            _check_stable(segment.path, position, end, stable_offset)
            _drop_from(log, number + 1)
            log.epochs.truncate_from_end(end)
            segment.truncate(position)
            break
    return end, scanned_from


def _check_stable(path: str, position: int, end: int, stable_offset: int) -> None:
    """No crash tears what was on stable storage: raises DamagedLogError where the log would end below that."""
    if end < stable_offset:
        raise DamagedLogError(path, position, end, f"all below offset {stable_offset} was on stable storage")


def _complete_index(segment: Segment) -> None:
    """A segment whose data was synced while it was active: its time index may have lost its last entries since."""
    try:
        segment.largest_timestamp()
        segment.complete_times(segment.size)
    except DamagedLogError:
        return  # whoever reads there is told
    segment.end_times()
    segment.sync_indexes()


def _drop_from(log: DurableLog, number: int) -> None:
    """Unlinks segments, the last one first, each durably: after another crash there is no hole."""
    for segment in reversed(log.segments[number:]):
        segment.unlink()
        log.disk.sync_directory(log.directory)
    log.set_segments(log.segments[:number])


def _scan_segment(
    log: DurableLog, segment: Segment, start: tuple[int, int], before: int, epoch: int, *, anew: bool
) -> tuple[int, int, int]:
    """(offset after the last sound batch, position after it, its epoch); ``before`` is where the segment before it ends, ``epoch`` that of
    the batch before ``start``.

    Builds the indexes anew from there on; ``anew``: also writes what it found where it is.
    """
    position, end = start
    segment.trust_from(position)
    limit = segment.offset_limit if segment is log.active else log.next_base_offset(segment) - 1
    expected = Expectation(not log.gaps_allowed, limit)
    log.epochs.truncate_from_end(end)  # what the checkpoint says of later ones may be from before a truncation

    def note_epoch(epoch: int, ended: int) -> None:
        log.note_epoch(epoch, before if ended == segment.base_offset else ended)

    want = _PIECE_BYTES
    while position < segment.size:
        file, remaining = segment.handle.open(), segment.size - position
        asked = min(want, remaining)
        piece = memoryview(file.read_at(asked, position))
        note = partial(_note_at, segment, position)
        size, end, epoch = sound_prefix(piece, end, epoch, expected, note, note_epoch)
        if size and anew:
            _write_again(file, piece[:size], position)
        position += size
        want = _PIECE_BYTES if size else _size_of_first(piece, asked, remaining)
        if not want:
            break  # not cut off by the piece's end: bad
    segment.end_times()
    return end, position, epoch


def _write_again(file: File, data: memoryview, position: int) -> None:
    """What was read may be in the system's cache alone: where a sync failed in an earlier life (and the directory with it), the system takes
    its pages for clean, and no sync that comes brings them to the disk, unless they are written again. Without room nothing is lost by that."""
    try:
        file.write_at([data], position)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise


def _note_at(segment: Segment, start: int, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
    segment.note_batch(start + position, size, last_offset, max_timestamp)


def _size_of_first(piece: memoryview, asked: int, remaining: int) -> int:
    """The length of the batch that a piece begins with, of which more was not ``asked`` for; 0 if it cannot be one or the file ends
    within it."""
    try:
        size = read_header(piece).size_bytes
    except CorruptBatchError:
        return 0
    return size if asked < size <= remaining else 0  # always more than before: the same piece is never read again


def _scan_start(segment: Segment, recovery_point: int) -> tuple[int, int]:
    """(position to scan from, lowest offset there)."""
    if segment.base_offset < recovery_point:
        try:
            position, _ = segment.find(recovery_point)
            end = segment.last_offset_before(position) + 1
            segment.cut_indexes(position)
            segment.complete_times(position)
        except (DamagedLogError, IndexCorruptError):
            pass
        else:
            return position, end
    segment.clear_indexes()
    segment.transactions().reset()
    return 0, segment.base_offset
