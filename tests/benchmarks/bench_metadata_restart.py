"""How long a node with a million partitions takes to restart, and what its image weighs.

    python tests/benchmarks/bench_metadata_restart.py [--topics 10000] [--partitions 100] [--rounds 5]

Builds the image's store through the real records and `MetadataLoader`, then loads it in fresh processes, each as a restart does,
and prints a table: seconds from an opened store to a usable image (wall and CPU), memory gained per partition (RSS, glibc tuned
as `ottla server` tunes it), and what the first delta for a new publisher costs. Then the same as a node: `ottla server` (broker and
controller, none of the partitions its own) on a directory that holds the image and the snapshot it was taken of, from the start of
the process to the moment it takes requests. Goal (issue 5): 3 s, 500 bytes a partition.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ottla.testing.ports import free_ports

BROKERS = 12
REPLICAS = 3
BATCH_RECORDS = 10_000


def build(path: str, topics: int, partitions: int) -> None:
    from ottla.proto import metadata_pb2 as pb
    from ottla.quorum.listener import CommittedBatch
    from ottla.quorum.metadata.publisher import MetadataLoader
    from ottla.runtime.lmdb_store import LmdbStore

    rng = random.Random(1)
    loader = MetadataLoader(LmdbStore(path))
    waiting: list[bytes] = []
    offset = 0

    def commit() -> None:
        nonlocal offset
        offset += len(waiting)
        loader.on_commit(CommittedBatch(offset - len(waiting), offset - 1, 1, 0, list(waiting), ""))
        waiting.clear()

    for broker in range(BROKERS):
        registration = pb.RegisterBroker(
            broker_id=broker,
            broker_epoch=broker,
            incarnation_id=rng.randbytes(16),
            endpoints=[pb.Endpoint(name="PLAINTEXT", host=f"host-{broker}", port=9092)],
            directories=[directory_of(broker)],
        )
        waiting.append(pb.MetadataRecord(register_broker=registration).SerializeToString())
    for number in range(topics):
        topic_id = rng.randbytes(16)
        topic = pb.Topic(name=f"orders.region-{number % 50:02d}.stream-{number:06d}", topic_id=topic_id)
        waiting.append(pb.MetadataRecord(topic=topic).SerializeToString())
        for index in range(partitions):
            replicas = rng.sample(range(BROKERS), REPLICAS)
            partition = pb.Partition(
                topic_id=topic_id,
                partition_id=index,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=rng.randrange(200),
                partition_epoch=rng.randrange(1000),
                directories=[directory_of(each) for each in replicas],
            )
            waiting.append(pb.MetadataRecord(partition=partition).SerializeToString())
        if len(waiting) >= BATCH_RECORDS:
            commit()
    if waiting:
        commit()
    loader.close()


def build_empty(home: str) -> str:
    path = os.path.join(home, "image-empty")
    if not os.path.exists(path):
        build(path, 1, 1)
    return path


def directory_of(broker: int) -> bytes:
    return bytes([broker + 1]) * 16


def resident_bytes() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["RssAnon"].split()[0]) * 1024  # the store's pages are the kernel's, to drop when it likes


def load(path: str) -> None:
    """In a process of its own."""
    from ottla.quorum.metadata.delta import MetadataDelta
    from ottla.quorum.metadata.image import MetadataImage
    from ottla.quorum.metadata.publisher import MetadataLoader
    from ottla.runtime.launch import tune_allocator
    from ottla.runtime.lmdb_store import LmdbStore

    tune_allocator()
    store = LmdbStore(path)
    before, began, began_cpu = resident_bytes(), time.perf_counter(), time.process_time()
    loader = MetadataLoader(store)
    seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    gained = resident_bytes() - before
    partitions = sum(len(topic.partitions) for topic in loader.image.topics_by_id.values())
    began = time.perf_counter()
    delta = MetadataDelta.between(MetadataImage(), loader.image)
    first_delta = time.perf_counter() - began
    print(
        json.dumps(
            {
                "partitions": partitions,
                "seconds": seconds,
                "cpu": cpu,
                "bytes": gained / partitions,
                "first_delta": first_delta,
                "delta_bytes": (resident_bytes() - before - gained) / partitions,
                "delta_is_empty": delta.is_empty,
            }
        )
    )


def prepare_node(home: Path, image: str) -> Path:
    """A formatted node that has the image, and the snapshot that the metadata log begins after."""
    from ottla.cli.formatting import format_directories, new_cluster_id
    from ottla.quorum.election_store import ElectionStore
    from ottla.quorum.raft.election_state import ElectionState
    from ottla.quorum.snapshots.files import SnapshotFiles
    from ottla.quorum.snapshots.image_copies import ImageSnapshots
    from ottla.runtime.host import Host

    shutil.rmtree(home, ignore_errors=True)
    metadata = home / "data" / "__cluster_metadata-0"
    metadata.mkdir(parents=True)
    client, controller = free_ports(2)
    properties = home / "server.properties"
    properties.write_text(
        f"process.roles=broker,controller\nnode.id=100\nlog.dirs={home}/data\n"
        f"listeners=PLAINTEXT://localhost:{client},CONTROLLER://localhost:{controller}\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters=100@localhost:{controller}\n"
        f"ottla.pid.file={home}/pid\nottla.ready.file={home}/ready\n",
        encoding="utf-8",
    )
    cluster_id = new_cluster_id()
    format_directories(properties, cluster_id, ignore_formatted=False)
    host = Host.real()
    files = SnapshotFiles(host.disk, str(metadata))
    store = host.open_store(image)
    snapshot = ImageSnapshots(store, host.open_store).copy_to(files.taking_path)
    assert snapshot is not None
    shutil.copyfile(files.taking_path, metadata / "image")
    files.freeze_taken(snapshot, files.measure())
    store.close()
    promises = host.open_store(str(metadata / "quorum-state"))
    ElectionStore(promises, cluster_id, 100).save(ElectionState(snapshot.epoch))
    promises.close()
    return properties


def restart_node(properties: Path) -> tuple[float, float, float]:
    """(seconds to ready, CPU seconds, resident bytes) of one start."""
    ready, began = properties.parent / "ready", time.perf_counter()
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "ottla.cli.main", "server", "start", "--config", str(properties)]
    with (properties.parent / "server.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        while not ready.exists():
            if process.poll() is not None or time.perf_counter() - began > 60:
                raise SystemExit(f"the node did not start: see {properties.parent}/server.log")
            time.sleep(0.005)
        seconds = time.perf_counter() - began
        ticks = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[11:13]
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
        return seconds, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), resident * 1024
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=100, help="of each topic")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--home", help="keep the store here and use it again")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        load(options.load)
        return
    home = options.home or tempfile.mkdtemp(prefix="ottla-bench-")
    path = os.path.join(home, f"image-{options.topics}x{options.partitions}")
    if not os.path.exists(path):
        os.makedirs(home, exist_ok=True)
        began = time.perf_counter()
        build(path, options.topics, options.partitions)
        print(f"built in {time.perf_counter() - began:.0f} s: {os.path.getsize(path) / 1e6:.0f} MB")
    print(
        f"{'partitions':>10} {'load s':>7} {'CPU s':>6} {'B/partition':>11} {'first delta s':>13} {'its B/partition':>15}"
    )
    for _ in range(options.rounds):
        command = [sys.executable, __file__, "--load", path]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(
            f"{found['partitions']:>10} {found['seconds']:>7.2f} {found['cpu']:>6.2f} {found['bytes']:>11.0f} "
            f"{found['first_delta']:>13.2f} {found['delta_bytes']:>15.0f}"
        )
    properties = prepare_node(Path(home) / "node", path)
    empty = prepare_node(Path(home) / "empty", build_empty(home))
    print("\nthe process:    ready s  CPU s  B/partition above a node without any")
    for _ in range(options.rounds):
        base = restart_node(empty)[2]
        seconds, cpu, resident = restart_node(properties)
        print(
            f"{'':>15} {seconds:>7.2f} {cpu:>6.2f} {(resident - base) / (options.topics * options.partitions):>12.0f}"
        )
    if not options.home:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
