"""A log that is used while its disk fails, and what must be true of it then and after every kind of end."""

from collections.abc import Callable
from random import Random

from ottla.log.batch import read_header
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import MetaProperties
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import decode_records
from ottla.log.segments.transactions import AbortedTransaction
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

PARTITION = TopicPartition("flights", 0)
TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
PRODUCER_ID = 7
LARGE, SMALL = 500, 20
MARKER = b"marker"
NEVER = 2**63
LASTS = 4
"""So many operations in a row fail, every other time."""
SEGMENT_BYTES = 2000
CONFIG = LogConfig(
    segment_bytes=SEGMENT_BYTES,
    index_interval_bytes=600,
    retention_bytes=2 * SEGMENT_BYTES,
    file_delete_delay_ms=1000,
)


class DirectoryLost(Exception):
    """The disk failed for good: the log is offline, as it should be."""


class LogOnTrial:
    """One life, and what is known of it. ``present``: what was taken and not cut off, by offset."""

    def __init__(self, number: int, ending: str) -> None:
        self.number = number
        self.ending = ending
        self.platter = formatted(number)
        self.present: dict[int, bytes | None] = {}
        self.next_offset = 0
        self.first = 0
        self.synced = 0
        self.sequence = 0
        self.epoch = 0
        self.refused = 0
        self.keys = 0
        self.cleaned_to = 0
        self.cut_to = NEVER  # while it is being cut: how far it may be when it is given up
        self.topic_id = TOPIC_ID
        self.is_to_go = False  # it may be nobody's at the next start
        self.aborted: list[AbortedTransaction] = []
        self.unsure_aborted: AbortedTransaction | None = None
        self.unsure: dict[int, bytes | None] = {}  # was refused, and may be there after a kill
        self.manager = open_manager(self.platter)
        self.log: Log

    def attempt(self, action: Callable[[], object], after_refusal: Callable[[], object] | None = None) -> object:
        while True:
            try:
                return action()
            except StorageError:
                self.after_refusal(after_refusal or self.check)

    def after_refusal(self, check: Callable[[], object]) -> None:
        self.refused += 1
        assert self.refused <= 2 * LASTS + 1, "no more operations failed"
        root = self.manager.roots[0]
        if root.failure is not None:
            raise DirectoryLost
        root.set_full(False)
        if not self.half_done:
            check()

    @property
    def half_done(self) -> bool:
        """It has to be read anew, and that failed too: nothing can be said of it."""
        log = self.manager.logs.get(PARTITION)
        return log is not None and log.half_done

    def no_log_yet(self) -> None:
        assert PARTITION not in self.manager.logs

    def _cut(self, before: dict[int, bytes | None], end: int) -> None:
        self.present = {offset: value for offset, value in before.items() if offset < end}
        self.next_offset = end
        self.sequence = sum(value not in (b"aborted", MARKER) for value in self.present.values())

    # What must be true

    def check(self) -> None:
        """In memory, and of the files under it."""
        with self.platter.sound():
            self._check()

    def _check(self) -> None:
        log = self.log
        assert log.log_end_offset == self.next_offset
        assert log.log_start_offset == self.first
        assert log.high_watermark <= log.log_end_offset
        self.check_records(log)
        self.check_files(log)

    def check_records(self, log: Log) -> None:
        found = records(log)
        expected = {offset: value for offset, value in self.present.items() if offset >= log.log_start_offset}
        if self.cleaned_to:
            self.check_compacted(found, expected)
        else:
            assert {**found, **dict.fromkeys(self.markers(found))} == {**expected, **dict.fromkeys(self.markers(found))}
        ended = [each.last_offset for each in [*self.aborted, self.unsure_aborted] if each is not None]
        marked = {offset for offset in ended if offset in found and self.present[offset] is MARKER}
        if marked or self.aborted:
            aborted = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
            assert {each.last_offset for each in aborted} == marked
        known = log.producers.entry(PRODUCER_ID)
        if not self.cleaned_to and self.sequence:
            assert known is not None
            assert known.next_sequence == self.sequence

    def markers(self, found: dict[int, bytes | None]) -> list[int]:
        return [offset for offset in found if self.present.get(offset) is MARKER]

    def check_compacted(self, found: dict[int, bytes | None], expected: dict[int, bytes | None]) -> None:
        for offset, value in found.items():
            assert expected[offset] == value
        for offset in expected:
            later = range(offset + self.keys, self.next_offset, self.keys)
            assert offset in found or any(each in found for each in later), f"{offset} is gone, and nothing hides it"

    def check_files(self, log: Log) -> None:
        names = log.disk.list_directory(log.directory)
        bases = [int(name.removesuffix(".log")) for name in names if name.endswith(".log")]
        begun = [segment for segment in log.segments if segment.is_begun]
        assert bases == [segment.base_offset for segment in begun]
        for segment in begun:
            file = log.disk.open(segment.path)
            assert file.size() >= segment.size
            file.close()

    # Ends

    def stop(self, ending: str) -> None:
        if ending == "close":
            self.manager.close()
        if ending == "power":
            self.platter.power_loss()
        else:
            self.platter.close_sessions()

    def reopen(self, ending: str) -> None:
        self.manager = open_manager(self.platter)
        assert self.manager.roots[0].failure is None
        log = self.manager.logs.get(PARTITION)
        if log is None or log.topic_id != self.topic_id:  # not there yet, or it is of the topic before
            assert not self.synced or self.is_to_go
            self.present, self.next_offset, self.first, self.sequence = {}, 0, 0, 0
            self.log = self.manager.get_or_create(PARTITION, CONFIG, self.topic_id, now_ms=NOW_MS)
            return
        self.log = log
        with self.platter.sound():
            self.settle(ending)
        log.set_high_watermark(log.log_end_offset)
        self.check()
        names = log.disk.list_directory(log.directory)
        assert not [name for name in names if name.endswith((".tmp", ".cleaned", ".swap", ".deleted"))]

    def settle(self, ending: str) -> None:
        """What the kind of end allows: a refused batch that is there, and after a power cut, what was not synced lost."""
        log, end = self.log, self.log.log_end_offset
        if self.cut_to <= end:
            self._cut({} if log.log_start_offset == end else dict(self.present), end)
            self.first = log.log_start_offset if log.log_start_offset == end else self.first
        elif end > self.next_offset:
            assert end in (*self.unsure, max(self.unsure) + 1), "or the beginning of a segment for it"
            self._cut(self.present | self.unsure, end)
        if ending == "power":
            assert end >= min(self.synced, self.next_offset)
            self._cut(dict(self.present), end)
        assert log.log_start_offset <= max(self.first, log.segments[0].base_offset)
        if log.log_start_offset < self.first:  # its checkpoint was not written yet: what was deleted is back
            assert ending != "close" or not self.first
        self.first = log.log_start_offset
        known = log.producers.entry(PRODUCER_ID)
        self.sequence = known.next_sequence if known is not None and self.cleaned_to else self.sequence


def formatted(seed: int) -> Platter:
    platter = Platter.seeded(seed)
    disk = SimulatedDisk(platter)
    disk.make_directories("/data")
    MetaProperties("c", 1, bytes(15) + b"\x09").write(disk, "/data")
    disk.sync_directory("/")
    return platter


def open_manager(platter: Platter) -> LogManager:
    settings = ManagerSettings(cluster_id="c", node_id=1, free_bytes_floor=0)
    manager = LogManager(SimulatedDisk(platter), ["/data"], CONFIG, settings, Random(1))
    manager.open_all(NOW_MS)
    return manager


def records(log: Log) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20)
        at = 0
        while at < len(read.data):
            header = read_header(read.data, at)
            found.update((each.offset, each.value) for each in decode_records(read.data, header, position=at))
            at += header.size_bytes
        if not read.data:
            break  # a gap up to the beginning of an empty segment
        offset = read.next_offset
    return {each: value for each, value in found.items() if each >= log.log_start_offset}
