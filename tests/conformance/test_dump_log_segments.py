"""Ottla's files are read by Apache Kafka's own tools without a complaint, and Kafka's by ours."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.log.batch import read_header
from ottla.log.compaction.cleaner import CleaningJob, clean
from ottla.log.compaction.plan import SegmentInfo
from ottla.log.compaction.swap import swap_files
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import MetaProperties, PartitionMetadata, write_epochs
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.names import TopicPartition
from ottla.log.producers.snapshot import decode, encode
from ottla.log.producers.state import ProducerStateManager
from ottla.log.records import EndMarker, Record, encode_batch, end_marker_batch
from ottla.log.segments.transactions import AbortedTransaction, TransactionIndex
from ottla.log.tools.dump import BatchRow, Damage, OffsetIndexRow, RecordRow, Row, TransactionRow, dump_file
from ottla.log.tools.verify import verify, verify_root
from ottla.quorum.control_records import control_batch
from ottla.quorum.raft.instructions import AppendControl, KRaftVersion, LeaderChange, Voters
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.runtime.real_disk import RealDisk
from ottla.testing.log.offset_checkpoint import OffsetCheckpoint
from ottla.testing.ports import free_port_block

KAFKA = str(Path(__file__).parents[1] / "peers" / "kafka" / "kafka")
DUMP = "org.apache.kafka.tools.DumpLogSegments"
DISK = RealDisk()
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
NOW = 1_700_000_000_000


def dump_log_segments(*arguments: str) -> str:
    """What Kafka's tool says. It has no useful exit status: complaints are in what it prints."""
    done = subprocess.run([KAFKA, "run", DUMP, *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    # The tool calls the first record of any segment but 0 "non-consecutive", and every gap that compaction leaves.
    complaints = [
        line
        for line in done.stderr.splitlines()
        if not re.match(r"Non-consecutive offsets in|  -?\d+ is followed by \d+", line)
    ]
    assert complaints == []
    return done.stdout


class Written:
    """A log directory of a topic with everything in it that a log can hold; segments are written as the cleaner writes them."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "everything-0"
        self.directory.mkdir(parents=True)
        self.producers = ProducerStateManager()
        self.end = 0
        self.segments: list[tuple[int, bytearray]] = [(0, bytearray())]

    def add(self, batch: bytearray) -> None:
        header = read_header(batch)
        completed = self.producers.replay(batch, header)
        if completed is not None and completed.aborted:
            index = TransactionIndex(DISK, f"{self.directory}/{self.segments[-1][0]:020d}.txnindex")
            index.append(
                AbortedTransaction(
                    completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
                )
            )
        self.segments[-1][1].extend(batch)
        self.end = header.next_offset

    def data(self, codec: int, pid: int, sequence: int, *, transactional: bool = False) -> None:
        records = [
            Record(
                self.end + i,
                1_700_000_000_000 + self.end + i,
                b"key-%d-%d" % (codec, i % 10),
                b"value-%d" % i * 9 if i != 37 or codec != 2 else None,
                (("h", b"1"),),
            )
            for i in range(40)
        ]
        self.add(
            encode_batch(
                records,
                base_offset=self.end,
                leader_epoch=3,
                compression=codec,
                producer_id=pid,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=transactional,
            )
        )

    def marker(self, pid: int, *, committed: bool) -> None:
        marker = EndMarker(committed, coordinator_epoch=4)
        timestamp = 1_700_000_000_000 + self.end
        self.add(
            end_marker_batch(
                marker, producer_id=pid, producer_epoch=0, timestamp=timestamp, base_offset=self.end, leader_epoch=3
            )
        )

    def roll(self) -> None:
        self.segments.append((self.end, bytearray()))

    def finish(self) -> list[SegmentInfo]:
        for base, data in self.segments:
            (self.directory / f"{base:020d}.log").write_bytes(data)
        self.producers.take_snapshot(DISK, str(self.directory), self.end)
        write_epochs(DISK, str(self.directory), ((3, 0),))
        PartitionMetadata.write(DISK, str(self.directory), bytes(range(16)))
        bounds = [*(base for base, _ in self.segments), self.end]
        return [SegmentInfo(base, bounds[i + 1], len(data)) for i, (base, data) in enumerate(self.segments)]


def build(root: Path, *, retained: bool) -> Written:
    """Every codec, idempotent and transactional batches, both markers, two segments; compacted, or with every record kept."""
    log = Written(root)
    for codec in range(5):
        log.data(codec, pid=1, sequence=40 * codec)
    log.roll()
    for sequence, committed in ((0, False), (40, True)):
        log.data(0, pid=2, sequence=sequence, transactional=True)
        log.marker(2, committed=committed)
    segments = log.finish()
    first_dirty = log.end if retained else 0
    job = CleaningJob(
        directory=str(log.directory),
        segments=segments,
        first_dirty=first_dirty,
        now_ms=1_700_000_100_000,
        delete_retention_ms=1000,
        segment_bytes=1 << 30,
        segment_index_bytes=10 << 20,
        index_interval_bytes=1000,
        dedupe_buffer_bytes=1 << 20,
        last_records=log.producers.last_records(),
    )
    for cleaned in clean(DISK, job).cleaned:
        for path in swap_files(DISK, str(log.directory), cleaned):
            os.unlink(path)
    return log


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("ottla"), retained=False).directory


def files(directory: Path, *suffixes: str) -> str:
    return ",".join(str(path) for path in sorted(directory.iterdir()) if path.suffix in suffixes)


def rows(directory: Path, suffix: str, *, records: bool = False) -> list[Row]:
    return [row for path in sorted(directory.glob(f"*{suffix}")) for row in dump_file(DISK, str(path), records=records)]


def test_kafka_reads_what_we_write(tmp_path: Path) -> None:
    directory = build(tmp_path, retained=True).directory
    said = dump_log_segments(
        "--deep-iteration", "--print-data-log", "--files", files(directory, ".log", ".txnindex", ".snapshot")
    )
    assert said.count("isvalid: true") == 9
    assert "isvalid: false" not in said
    assert said.count("payload: value-") == 7 * 40 - 1
    assert said.count("endTxnMarker") == 2
    for codec in CODECS:
        assert f"compresscodec: {codec}" in said
    assert "version: 0 producerId: 2 firstOffset: 200 lastOffset: 240 lastStableOffset: 241" in said
    assert "producerId: 2 producerEpoch: 0 coordinatorEpoch: 4 currentTxnFirstOffset: OptionalLong.empty" in said
    assert verify(DISK, str(directory), deep=True) == [
        finding for finding in verify(DISK, str(directory)) if "missing" in finding.message
    ]


def test_kafka_reads_the_control_records_of_the_quorum(tmp_path: Path) -> None:
    keys = [ReplicaKey(node, bytes([node]) * 16) for node in (1, 2)]
    records = (
        LeaderChange(2, tuple(keys), (1, 2)),
        KRaftVersion(1),
        Voters(VoterSet.of(Voter(key, Endpoint(f"host-{key.id}", 9093)) for key in keys)),
    )
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(control_batch(AppendControl(0, 1, records), 5))
    told = dump_log_segments("--print-data-log", "--files", str(path))

    assert '"leaderId":2,"voters":[{"voterId":1},{"voterId":2}],"grantingVoters":[{"voterId":1},{"voterId":2}]' in told
    assert 'KRaftVersion {"version":0,"kRaftVersion":1}' in told
    assert '"endpoints":[{"name":"CONTROLLER","host":"host-2","port":9093}]' in told


def test_kafka_reads_what_we_compacted(compacted: Path) -> None:
    said = dump_log_segments("--deep-iteration", "--files", files(compacted, ".log", ".txnindex"))
    assert "isvalid: false" not in said
    assert said.count("deleteHorizonMs: OptionalLong[1700000101000]") == 1
    found = [row for row in rows(compacted, ".log", records=True) if isinstance(row, RecordRow) and row.control is None]
    assert said.count("| offset:") == len(found) + 2
    assert len(found) == 5 * 10
    assert [row.key for row in found if row.value is None] == [b"key-2-7"]
    assert all(row.value is None or row.value.startswith(b"value-3") for row in found)


def test_kafka_finds_our_indexes_sane_and_true(compacted: Path) -> None:
    indexes = files(compacted, ".index", ".timeindex")
    said = dump_log_segments("--index-sanity-check", "--files", indexes)
    assert said.count("passed sanity check") == 2
    said = dump_log_segments("--verify-index-only", "--files", files(compacted, ".index", ".timeindex", ".log"))
    assert "Mismatches" not in said
    assert "mismatch" not in said.lower()
    assert "out of order" not in said.lower()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition that `Log` wrote as a leader does: every codec, idempotence, transactions, rolls, a clean close."""
    root = tmp_path_factory.mktemp("served")
    MetaProperties("cluster", 1, bytes(range(1, 17))).write(DISK, str(root))
    manager = LogManager(
        DISK, [str(root)], LogConfig(), ManagerSettings(cluster_id="cluster", node_id=1, free_bytes_floor=0), Random(1)
    )
    manager.open_all(NOW)
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=1000)
    log = manager.get_or_create(TopicPartition("served", 0), config, bytes(range(16)), now_ms=NOW)
    for number in range(60):
        records = [Record(i, NOW + 40 * number + i, b"k%d" % i, b"value-%d" % i * 9, (("h", b"1"),)) for i in range(40)]
        batch = encode_batch(
            records, compression=number % 5, producer_id=number % 2, producer_epoch=0, base_sequence=40 * (number // 2)
        )
        log.append_as_leader(memoryview(batch), 1 + number // 20, NOW)
    for sequence, committed in ((0, False), (1, True)):
        data = encode_batch(
            [Record(0, NOW, b"t", b"1")], producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        log.append_as_leader(memoryview(data), 3, NOW, verified=True)
        marker = end_marker_batch(EndMarker(committed, 4), producer_id=9, producer_epoch=0, timestamp=NOW)
        log.append_own(memoryview(marker), 3, NOW)
    log.set_high_watermark(log.log_end_offset)
    manager.close()
    return root / "served-0"


def test_kafka_reads_what_our_log_served(served: Path) -> None:
    assert len(list(served.glob("*.log"))) > 2
    said = dump_log_segments(
        "--deep-iteration", "--print-data-log", "--files", files(served, ".log", ".txnindex", ".snapshot")
    )
    assert said.count("isvalid: true") == 64
    assert "isvalid: false" not in said
    assert said.count("payload: value-") == 60 * 40
    assert said.count("endTxnMarker: ABORT") == said.count("endTxnMarker: COMMIT") == 1
    assert "version: 0 producerId: 9 firstOffset: 2400 lastOffset: 2401 lastStableOffset: 2402" in said
    assert "producerId: 9 producerEpoch: 0 coordinatorEpoch: 4 currentTxnFirstOffset: OptionalLong.empty" in said
    assert verify_root(DISK, str(served.parent)) == []


def test_kafka_finds_the_indexes_of_our_log_sane_and_true(served: Path) -> None:
    indexes = [path for path in sorted(served.iterdir()) if path.suffix in (".index", ".timeindex")]
    said = dump_log_segments("--index-sanity-check", "--files", ",".join(map(str, indexes)))
    assert said.count("passed sanity check") == len([path for path in indexes if path.stat().st_size])
    said = dump_log_segments("--verify-index-only", "--files", files(served, ".index", ".timeindex", ".log"))
    assert "mismatch" not in said.lower()
    assert "out of order" not in said.lower()
    assert len([row for row in rows(served, ".index") if isinstance(row, OffsetIndexRow)]) > 20


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of one Apache Kafka node after a few records, killed with -9."""
    home = tmp_path_factory.mktemp("kafka")
    extra = home / "extra.properties"
    extra.write_text("log.segment.bytes=1048576\nlog.index.interval.bytes=512\nlog.index.size.max.bytes=65536\n")
    node = home / "node"
    port = free_port_block(1, (0, 101))  # for clients, and for the controller
    subprocess.run([KAFKA, "up", str(node), "1", str(port), str(extra)], check=True, timeout=300)
    try:
        _fill(f"127.0.0.1:{port}")
    finally:
        subprocess.run([KAFKA, "kill", str(node), "1"], check=True)
    yield node / "data1"
    shutil.rmtree(home)


def _fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("codecs", 1, 1), NewTopic("aborts", 1, 1)]).values():
        future.result()
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True})
        for number in range(100):
            producer.produce("codecs", key=f"{codec}-{number}", value=b"v" * 50, headers={"h": b"1"})
            if number % 10 == 9:
                producer.flush()
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    transactional.init_transactions()
    for end in (transactional.commit_transaction, transactional.abort_transaction):
        transactional.begin_transaction()
        for number in range(10):
            transactional.produce("aborts", key=str(number), value=b"v")
        transactional.flush()
        end()
    _commit_an_offset(bootstrap)


def _commit_an_offset(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["codecs"])
    try:
        message = consumer.poll(60)
        assert message is not None
        if message.error():
            raise KafkaException(message.error())
        consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()


def test_a_directory_of_a_killed_kafka_node_is_sound_to_us(kafka: Path) -> None:
    findings = verify_root(DISK, str(kafka))
    assert [finding for finding in findings if finding.fault] == []


def test_every_record_that_kafka_wrote_is_dumped(kafka: Path) -> None:
    found = [row for row in rows(kafka / "codecs-0", ".log", records=True) if isinstance(row, RecordRow)]
    assert [row.offset for row in found] == list(range(500))
    assert [row.key for row in found] == [f"{codec}-{number}".encode() for codec in CODECS for number in range(100)]
    assert {(row.value, row.headers) for row in found} == {(b"v" * 50, (("h", b"1"),))}
    batches = [row for row in rows(kafka / "codecs-0", ".log") if isinstance(row, BatchRow)]
    assert {row.codec for row in batches} == set(CODECS)
    assert all(row.valid for row in batches)


def test_kafkas_transactions_and_snapshots_are_dumped(kafka: Path) -> None:
    controls = [
        row.control
        for row in rows(kafka / "aborts-0", ".log", records=True)
        if isinstance(row, RecordRow) and row.control
    ]
    assert controls == ["COMMIT", "ABORT"]
    assert [row for row in rows(kafka / "aborts-0", ".txnindex") if isinstance(row, TransactionRow)] != []
    for path in kafka.glob("*/*.snapshot"):
        assert encode(decode(path.read_bytes())) == path.read_bytes()
    every = [
        row
        for path in kafka.glob("*/*")
        if path.suffix in (".log", ".index", ".timeindex")
        for row in dump_file(DISK, str(path))
    ]
    assert [row for row in every if isinstance(row, Damage)] == []


def test_kafkas_checkpoints_are_read_and_written_alike(kafka: Path) -> None:
    for path in kafka.glob("*-offset-checkpoint"):
        offsets = OffsetCheckpoint(DISK, str(path)).read()
        if offsets:
            copy = path.with_name("copy")
            OffsetCheckpoint(DISK, str(copy)).write(offsets)
            assert copy.read_bytes() == path.read_bytes()
            copy.unlink()
    topic_id = PartitionMetadata.read(DISK, str(kafka / "codecs-0"))
    assert topic_id is not None
    before = (kafka / "codecs-0" / "partition.metadata").read_bytes()
    PartitionMetadata.write(DISK, str(kafka / "codecs-0"), topic_id)
    assert (kafka / "codecs-0" / "partition.metadata").read_bytes() == before
    assert TopicPartition("codecs", 0) in {
        TopicPartition(path.name.rpartition("-")[0], 0) for path in kafka.glob("codecs-0")
    }
