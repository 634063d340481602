"""The broker role of a node: its logs, partitions, client listeners and standing with the controller, put together."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from ottla.broker.cleaning import StartWorker
from ottla.broker.context import BrokerContext
from ottla.broker.coordination import Coordination
from ottla.broker.directories import NodeIdentity
from ottla.broker.features import SUPPORTED_FEATURES
from ottla.broker.handlers.fetching.cold_reads import ColdReads
from ottla.broker.handlers.routes import client_routes
from ottla.broker.handlers.time_searches import TimeSearches
from ottla.broker.lifecycle import BrokerLifecycle, LifecycleSettings
from ottla.broker.links.leader import leaders
from ottla.broker.listening import naming
from ottla.broker.network.limits import ServerLimits
from ottla.broker.network.server import NetworkServer
from ottla.broker.node_settings import NodeSettings
from ottla.broker.quorum_view import QuorumView
from ottla.broker.replication.purgatory import WakeQueue
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.scrubbing import Scrubbing, ScrubSettings
from ottla.broker.storage import Storage
from ottla.log.compaction.worker import CleanerProcess
from ottla.log.directories.roots import LogDirectoryError
from ottla.log.names import TopicPartition
from ottla.proto import controller_pb2
from ottla.quorum.controller.channel import ControllerChannel
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.node import QuorumNode
from ottla.quorum.rpc.transport import RpcTransport
from ottla.runtime.endings import end_each
from ottla.runtime.host import Host
from ottla.runtime.identifiers import random_id
from ottla.runtime.settings.security import PROTOCOL_MAP, protocol_of
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.timers import LoopTimers
from ottla.runtime.turns import over_turns

logger = logging.getLogger(__name__)

PLAINTEXT = 0
"""The security protocol's number; no setting asks for another (`ottla.runtime.settings.security`)."""
OnFatal = Callable[[Exception], None]


class Broker:
    """A broker and its parts. Made before the quorum starts, so that its listeners are bound while the metadata is still on
    its way."""

    def __init__(
        self,
        config: ServerConfig,
        identity: NodeIdentity,
        host: Host,
        timers: LoopTimers,
        loader: MetadataLoader,
        channel: ControllerChannel,
        quorum: QuorumNode,
        transport: RpcTransport,
        on_fatal: OnFatal,
        start_cleaner: StartWorker = CleanerProcess,
    ) -> None:
        self._config = config
        self.settings = NodeSettings(config, loader.image)
        config = self.settings.current
        self._loader = loader
        self._timers = timers
        self._on_fatal = on_fatal
        self.storage = Storage(
            config,
            identity.cluster_id,
            host,
            timers,
            loader.image,
            self._directories_failed,
            lambda old, new: self.replicas.log_moved(old, new),
            lambda partition: self._scrubbing.look_at(partition),
            lambda log: self.replicas.log_shortened(log),
            start_cleaner,
        )
        wakes = WakeQueue(asyncio.get_running_loop())
        self.replicas = ReplicaManager(
            config, self.storage, timers, channel, host.rng, wakes, host.sync_later, leaders(config, timers)
        )
        self._scrubbing = Scrubbing(self.storage.manager.logs, ScrubSettings.of(config), timers, self.replicas.damaged)
        self.lifecycle = BrokerLifecycle(
            _registration(config, identity, host, self.storage),
            LifecycleSettings.of(config),
            channel,
            loader,
            lambda: loader.confirmed_offset,
            timers,
            on_epoch=self._registered,
            on_fatal=on_fatal,
        )
        self._quorum_view = QuorumView(quorum, transport, identity.cluster_id)
        cold_reads = ColdReads()
        self.coordination = coordination = Coordination(
            config,
            host,
            timers,
            loader,
            channel,
            self.replicas,
            cold_reads,
            lambda: self.lifecycle.broker_epoch,
            lambda: self.context,
        )
        self.context = BrokerContext(
            config=self._config,
            host=host,
            timers=timers,
            image=loader.image,
            controller=channel,
            quorum=quorum,
            replicas=self.replicas,
            cold_reads=cold_reads,
            time_searches=TimeSearches(cold_reads),
            internal_topics=coordination.topics,
            groups=coordination.groups,
            transactions=coordination.transactions,
            verifications=coordination.verifications,
            producer_ids=coordination.producer_ids,
            quorum_view=self._quorum_view,
            logs=self.storage.manager,
            moves=self.storage.moves,
            node_id=config.node_id,
            cluster_id=identity.cluster_id,
        )
        self._descriptors = host.descriptors
        self._limits = ServerLimits.from_config(self._config, self._descriptors)
        self.network = NetworkServer(self._limits, host.loop_watch)
        self.settings.on_change(self._settings_changed)
        loader.add_publisher(self.settings)
        coordination.listen()
        self._work: asyncio.Task[None] | None = None

    async def bind(self) -> None:
        """Takes the client ports; raises SettingError when one is taken. Nobody is served before `start` has gone through."""
        routes = client_routes(self.context)
        protocols = self._config.string(PROTOCOL_MAP)
        for listener in self._config.client_listeners:
            with naming(listener):
                protocol = protocol_of(listener.name, protocols)
                port = await self.network.bind(listener.name, listener.host, listener.port, routes, protocol)
            self.lifecycle.bound(listener.name, port)

    def start(self, on_ready: Callable[[], None]) -> None:
        """Registers, recovers, and takes requests; ``on_ready`` is called when it does."""
        self._limit_clients(self.settings.current)
        self.lifecycle.start()
        self._work = asyncio.get_running_loop().create_task(self._come_up(on_ready), name="broker start")
        self._work.add_done_callback(self._came_up)

    def _came_up(self, work: "asyncio.Task[None]") -> None:
        """A broker that is half up would stay so, and nobody would know why."""
        error = None if work.cancelled() else work.exception()
        if error is not None:
            self._on_fatal(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    async def _come_up(self, on_ready: Callable[[], None]) -> None:
        await self.lifecycle.caught_up.wait()
        await over_turns(self._loader.introduce(self.replicas))
        self.storage.set_aside_strays(self._loader.image)
        self.replicas.start()
        self.coordination.start(self._config, self.settings)
        self.storage.start()
        self._scrubbing.start()
        self.lifecycle.ready()
        await self.lifecycle.running.wait()
        await self.network.start()
        on_ready()

    def _settings_changed(self, config: ServerConfig) -> None:
        self._limit_clients(config)
        self.storage.configure(config)
        self.replicas.set_throttles(config)
        self.coordination.configure(config)

    def _limit_clients(self, config: ServerConfig) -> None:
        """Who is connected stays. Hosts among the limits are looked up with other limits only: a name server may be away. One that nobody knows
        ends a start where the file has it; of one that was set at run time a line is told."""
        limits = ServerLimits.from_config(config, self._descriptors)
        if limits != self._limits:
            self._limits = limits
            self.network.change_limits(limits)

    def contact_lost(self) -> None:
        """The way to the controller changed: say at once that this broker lives."""
        self.lifecycle.contact_lost()

    def _registered(self, epoch: int) -> None:
        self.replicas.broker_epoch = epoch

    def _directories_failed(self, directory_ids: list[bytes], partitions: list[TopicPartition]) -> None:
        self.replicas.directory_failed(partitions)
        self.lifecycle.directories_failed(directory_ids)
        try:
            self.storage.require_working_directories()
        except LogDirectoryError as error:
            self._on_fatal(error)

    async def stop(self, timeout_s: float) -> None:
        """Hands leaderships over, answers what it can, flushes and closes the logs. Raises what failed first, when all is through."""
        await end_each(
            (
                partial(self._leave, timeout_s),
                self.network.stop,
                self.coordination.stop,
                self.replicas.stop,
                self.coordination.close,
                self.context.time_searches.close,
                self.context.cold_reads.close,
                self._quorum_view.close,
                self._scrubbing.stop,
                lambda: self.storage.close(self.lifecycle.broker_epoch),
            )
        )

    async def _leave(self, timeout_s: float) -> None:
        if self._work is not None and not self._work.done():
            self._work.cancel()
            self.lifecycle.stop()
        else:
            await self.lifecycle.shut_down(int(timeout_s * 1000))


def _registration(
    config: ServerConfig, identity: NodeIdentity, host: Host, storage: Storage
) -> controller_pb2.RegisterBrokerRequest:
    request = controller_pb2.RegisterBrokerRequest(
        broker_id=config.node_id,
        cluster_id=identity.cluster_id,
        incarnation_id=random_id(host.rng),
        directories=storage.working_directories,
        previous_broker_epoch=storage.previous_broker_epoch,
    )
    if config.rack is not None:
        request.rack = config.rack
    for listener in config.advertised_listeners:
        request.endpoints.add(name=listener.name, host=listener.host, port=listener.port, security_protocol=PLAINTEXT)
    for name, (low, high) in SUPPORTED_FEATURES.items():
        request.features.add(name=name, min_version=low, max_version=high)
    return request
