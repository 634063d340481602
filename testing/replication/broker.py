"""One simulated broker: the network, the handlers and the replica manager of production, on a directory of its own."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Protocol

from ottla.broker.handlers import describe_producers, list_offsets, offset_for_leader_epoch, produce, write_txn_markers
from ottla.broker.handlers.common import route
from ottla.broker.handlers.fetching import fetch
from ottla.broker.handlers.fetching.cold_reads import ColdReads
from ottla.broker.handlers.routes import client_routes
from ottla.broker.handlers.time_searches import TimeSearches
from ottla.broker.links.leader import leaders
from ottla.broker.links.peers import Peers
from ottla.broker.links.verifier import Verifier
from ottla.broker.network.server import NetworkServer
from ottla.broker.replication.appending import append_own
from ottla.broker.replication.purgatory import WakeQueue
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.replication.verifications import Verifications
from ottla.broker.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from ottla.log.config import LogConfig
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.proto import controller_pb2 as controller_pb
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.host import Host
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.node import SimulatedNode
from ottla.runtime.timers import LoopTimers
from ottla.testing.broker_context import broker_context
from ottla.testing.replication.transactions import Transactions

TOPIC, TOPIC_ID = "flights", b"F" * 16
PORT = 9092
Done = Callable[[controller_pb.ControllerResponse | None], None]


class Controller(Protocol):
    """Whoever answers the brokers' AlterPartition requests."""

    settings: dict[str, str]
    transactions: Transactions
    records: list[pb.MetadataRecord]
    loop: SimulationLoop

    def alter(self, request: controller_pb.ControllerRequest, on_done: Done) -> None: ...


class Logs:
    """Logs on the simulated disk, one directory, opened when first asked for."""

    def __init__(self, host: Host, lost_directory: Callable[[], bool]) -> None:
        """``lost_directory``: there was another, which failed; as with `LogManager`, what is not new may lie in it."""
        self._host = host
        self._lost_directory = lost_directory
        self.opened: dict[TopicPartition, Log] = {}

    def get_or_create(
        self,
        partition: TopicPartition,
        config: LogConfig,
        topic_id: bytes,
        directory_id: bytes | None = None,
        *,
        is_new: bool = True,
    ) -> Log:
        log = self.opened.get(partition)
        if log is None:
            directory = f"/data/{partition}"
            if self._lost_directory() and not is_new and not self._host.disk.exists(directory):
                raise StorageError("it may lie in a directory that failed")
            self._host.disk.make_directories(directory)
            now_ms = self._host.clock.wall_ms()
            log = Log.open(self._host.disk, directory, partition, config, now_ms=now_ms)
            log.set_topic_id(topic_id)
            log.sync_names()
            self.opened[partition] = log
        return log

    def delete(self, partition: TopicPartition, topic_id: bytes) -> None:
        if partition in self.opened:
            self.opened.pop(partition).abandon()
            self._host.disk.remove_tree(f"/data/{partition}")

    def reads(self, directory_id: bytes) -> bool:
        return not self._lost_directory()

    def checkpoint_high_watermarks(self) -> None:
        """The tests that need it write it themselves."""


class Broker:
    """One node: the network, the handlers and the replica manager of production."""

    def __init__(self, cluster: Controller, node_id: int) -> None:
        self.cluster, self.node_id = cluster, node_id
        self.image = MetadataImage()
        self.manager: ReplicaManager | None = None
        self.lost_directory = False
        self.up = asyncio.Event()
        self.node: SimulatedNode = cluster.loop.create_node(f"broker-{node_id}")
        self.node.start(self._main)

    async def _main(self, host: Host) -> None:
        config = ServerConfig(
            {
                "node.id": str(self.node_id),
                "process.roles": "broker",
                "controller.quorum.voters": "9@controller:9093",
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://broker-{self.node_id}:{PORT}",
                **self.cluster.settings,
            }
        )
        loop = asyncio.get_running_loop()
        timers = LoopTimers(loop)
        self.image = MetadataImage()
        logs = Logs(host, lambda: self.lost_directory)
        self.manager = ReplicaManager(
            config, logs, timers, self, host.rng, WakeQueue(loop), host.sync_later, leaders(config, timers)
        )
        cold_reads = ColdReads()
        transactions = self.cluster.transactions
        self.peers = Peers(config, self.image, timers, "test")
        verifier = Verifier(self.peers, lambda _: transactions.node_id, timers, retry_ms=20, retry_ms_max=100)
        self.verifications = Verifications(
            verifier, timers, is_enabled=config.flag("transaction.partition.verification.enable")
        )
        broker = broker_context(
            config,
            host=host,
            timers=timers,
            image=self.image,
            quorum=SimpleNamespace(kraft_version=0),
            replicas=self.manager,
            verifications=self.verifications,
            cold_reads=cold_reads,
            time_searches=TimeSearches(cold_reads),
        )
        modules = (produce, fetch, list_offsets, offset_for_leader_epoch, write_txn_markers, describe_producers)
        coordinator = route("AddPartitionsToTxn", AddPartitionsToTxnRequest, transactions.add_partitions)
        routes = client_routes(broker, (*(module.routes for module in modules), lambda _: [coordinator]))
        self.network = NetworkServer()
        await self.network.bind("PLAINTEXT", f"broker-{self.node_id}", PORT, routes)
        await self.network.start()
        self.manager.start()
        self.up.set()
        await asyncio.Event().wait()

    def call_back(self, request: controller_pb.ControllerRequest, on_done: Done, timeout_ms: int) -> None:
        """The controller, two milliseconds away."""
        asyncio.get_running_loop().call_later(0.002, self.cluster.alter, request, on_done)

    def learn(self, records: Sequence[pb.MetadataRecord]) -> None:
        if self.node.process is not None:
            self.node.process.run(self._apply, records)

    def _apply(self, records: Sequence[pb.MetadataRecord]) -> None:
        assert self.manager is not None
        delta = MetadataDelta()
        for record in records:
            self.image.apply(record, delta)
        self.peers.publish(delta, self.image)
        self.manager.publish(delta, self.image)

    def log(self, index: int = 0) -> Log:
        assert self.manager is not None
        log = self.manager.partitions[TOPIC_ID, index].log
        assert isinstance(log, Log)
        return log

    def run(self, what: Callable[[], None]) -> None:
        """In this broker's process."""
        assert self.node.process is not None
        self.node.process.run(what)

    def append_own(self, batch: bytearray) -> None:
        """As the broker's own coordinators do it, with acks=all; what becomes of it nobody is told."""
        self.run(lambda: self._append_own(batch))

    def _append_own(self, batch: bytearray) -> None:
        assert self.manager is not None
        partition = self.manager.partitions[TOPIC_ID, 0]
        append_own(partition, batch, partition.leader_epoch, 1_000, self.manager.timers.now_ms(), lambda _: None)

    def kill(self) -> None:
        self.node.kill()

    async def restart(self) -> None:
        self.up.clear()
        self.node.restart()
        await self.up.wait()
        self.learn(self.cluster.records)
