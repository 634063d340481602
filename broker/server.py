"""A node, put together: the only place that knows all parts.

Every node holds the metadata log (a controller as voter, a plain broker as observer) and an image of it. A controller
serves the quorum's and the controller's RPCs; a broker hosts partitions and serves clients once the controller let it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from ottla.broker.broker import Broker
from ottla.broker.cleaning import StartWorker
from ottla.broker.context import NodeContext
from ottla.broker.controller_listener import Entrance, OwnController, entrance
from ottla.broker.directories import NodeIdentity, metadata_directory, read_identity
from ottla.broker.features import SUPPORTED_FEATURES
from ottla.broker.listening import naming, naming_setting
from ottla.broker.metadata_storage import StoreSync, image_named, open_metadata_log, open_quorum_store, snapshot_limits
from ottla.broker.metrics.http import MetricsServer
from ottla.broker.metrics.node import NodeMetrics
from ottla.broker.metrics.scrape import Scraper
from ottla.broker.network.limits import ServerLimits
from ottla.broker.network.server import NetworkServer
from ottla.broker.quorum_view import QuorumView
from ottla.log.compaction.worker import CleanerProcess
from ottla.log.directories.roots import lock
from ottla.log.log import Log
from ottla.quorum.begun_mark import BegunMark
from ottla.quorum.controller.attempts import COMMITTED_MAX
from ottla.quorum.controller.channel import CONTROLLER_SERVICE, ControllerChannel
from ottla.quorum.controller.config_rules import SettingRules
from ottla.quorum.controller.controller import Controller
from ottla.quorum.controller.decisions.state import ControllerSettings
from ottla.quorum.controller.knocking import Knocker
from ottla.quorum.controller.registration import ControllerRegistration
from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch, QuorumFailure
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.metadata.rack_mates import RackMates
from ottla.quorum.node import QuorumNode
from ottla.quorum.peers import QUORUM_SERVICE
from ottla.quorum.raft.voters import Endpoint
from ottla.quorum.rpc.transport import Handler, PerConnection, RpcServer, RpcTransport, Service
from ottla.quorum.settings import QuorumSettings
from ottla.quorum.snapshots.image_copies import ImageSnapshots
from ottla.runtime.disk import Lock
from ottla.runtime.endings import Part, end_each
from ottla.runtime.host import Host
from ottla.runtime.identifiers import random_id
from ottla.runtime.key_value import KeyValueStore
from ottla.runtime.settings import endpoints
from ottla.runtime.settings.definitions import topic_settings, value_text
from ottla.runtime.settings.idle import idle_settings
from ottla.runtime.settings.server import METRICS_LISTENER, ServerConfig
from ottla.runtime.settings.topic import server_default
from ottla.runtime.sync_later import SyncLater
from ottla.runtime.timers import LoopTimers

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S = 25.0
OnFatal = Callable[[Exception], None]


class Server:
    """One node. ``ready`` is set when it takes requests (a controller without the broker role: when it serves RPCs)."""

    def __init__(
        self,
        config: ServerConfig,
        host: Host,
        transport: RpcTransport,
        on_fatal: OnFatal | None = None,
        start_cleaner: StartWorker = CleanerProcess,
        on_locked: Callable[[], None] = lambda: None,
        recovering: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """``on_fatal`` is told when the node cannot go on; it should then be stopped. ``on_locked`` is called once no other process
        can run on these directories, before anything of them is read, which may take minutes: that happens within ``recovering``, which may end it."""
        self.config = config
        self.ready = asyncio.Event()
        self._start_cleaner = start_cleaner
        self._host = host
        self._transport = transport
        self._on_fatal = on_fatal or _log_fatal
        self._on_locked = on_locked
        self._recovering = recovering
        self._log: Log | None = None
        self._lock: Lock | None = None  # before the log is opened: recovery may cut what another process just wrote
        self._stores: list[KeyValueStore] = []
        self._store_sync: StoreSync | None = None
        self._rpc_server: RpcServer | None = None
        self._channel: ControllerChannel | None = None
        self.quorum: QuorumNode | None = None
        self.controller: Controller | None = None
        self._knocker: Knocker | None = None
        self.broker: Broker | None = None
        self.network: NetworkServer | None = None
        """Of Kafka's protocol. A broker's serves its controller's listener too: they share the limits."""
        self.metrics = NodeMetrics(config, host)
        self._metrics_server: MetricsServer | None = None
        self._stopped = False

    async def start(self) -> None:
        """Brings everything up. Raises SettingError, CheckpointError, LogDirectoryError, KafkaError or OSError with one line."""
        config, host = self.config, self._host
        for line in idle_settings(config.set_values):
            logger.warning("%s", line)
        identity = read_identity(host.disk, config)
        timers = LoopTimers(asyncio.get_running_loop(), host.loop_watch)
        directory = metadata_directory(config)
        host.disk.make_directories(directory)
        self._lock = lock(host.disk, directory)
        self._on_locked()
        await self._transport.prepare(identity.cluster_id)
        await self._serve_metrics()
        begun = BegunMark(host.disk, config.metadata_log_dir, identity.metadata_directory_id)
        if config.is_controller:
            begun.require_promises(directory)
        election_store = open_quorum_store(self._open_store, directory)
        with self._recovering():
            self._log = open_metadata_log(host, directory, config, election_store)
        with image_named():
            image_store = self._open_store(f"{directory}/image")
            loader = MetadataLoader(image_store, host.open_store, SUPPORTED_FEATURES)
        listener = _Fanout(loader, self._leader_changed)
        self.quorum = QuorumNode(
            quorum_settings(config, identity),
            host,
            self._transport,
            self._log,
            election_store,
            listener,
            applied=loader.applied,
            sync_later=SyncLater(),
            on_failure=self._quorum_failed,
            on_peer_broken=self._peer_broken,
            snapshot_directory=directory,
        )
        if config.is_controller:
            begun.set()
        self.quorum.set_snapshot_source(ImageSnapshots(image_store, host.open_store))
        self._store_sync = StoreSync(loader, election_store, timers)
        if config.is_controller:
            self._make_controller(self.quorum, loader, timers, _controller_settings(config, identity))
            listener.controller = self.controller
        local = self.controller.handle if self.controller else None
        self._channel = ControllerChannel(
            self.quorum, self._transport, self.quorum.endpoint_of, local, host.rng, self._contact_lost
        )
        if config.is_broker:
            with self._recovering():
                self.broker = Broker(
                    config,
                    identity,
                    host,
                    timers,
                    loader,
                    self._channel,
                    self.quorum,
                    self._transport,
                    self._on_fatal,
                    self._start_cleaner,
                )
            await self.broker.bind()
        self.network = self.broker.network if self.broker else self._own_network()
        if config.is_controller:
            await self._serve_rpc(self.quorum, self.controller, loader, identity)
        await self._come_up(self.quorum, self._channel, loader)

    def _make_controller(
        self, quorum: QuorumNode, loader: MetadataLoader, timers: LoopTimers, settings: ControllerSettings
    ) -> None:
        self._knocker = Knocker(self.config.detours)
        self.controller = Controller(quorum, loader, self._host, timers, settings, self._knocker)
        self.controller.recall(quorum.applied_lately(loader.applied, COMMITTED_MAX))
        quorum.voter_changes.who_cannot_read = self.controller.who_cannot_read

    async def _come_up(self, quorum: QuorumNode, channel: ControllerChannel, loader: MetadataLoader) -> None:
        """Takes part, now that everything is bound that others may ask."""
        await quorum.start()
        if self.config.rack is not None:
            loader.add_publisher(RackMates(self.config.rack, quorum.set_rack_mates))
        self._watch(quorum, loader)
        if self.config.is_controller:
            self._register(channel, loader)
        if self.broker:
            self.broker.start(self.ready.set)
        else:
            self.ready.set()

    async def _serve_metrics(self) -> None:
        """Begins to serve metrics, early: where a start takes long, that is to be seen."""
        listener = self.config.metrics_listener
        if listener is None:
            return
        self._metrics_server = MetricsServer(Scraper(self.metrics.registry))
        with naming_setting(f"{METRICS_LISTENER}={listener}"):
            port = await self._metrics_server.bind(listener)
        logger.info("metrics at http://%s/metrics", endpoints.Endpoint(listener.host or "localhost", port))

    def _watch(self, quorum: QuorumNode, loader: MetadataLoader) -> None:
        assert self.network is not None
        self.metrics.watch_quorum(quorum)
        self.metrics.watch_network(self.network)
        if self.controller:
            self.metrics.watch_controller(self.controller, quorum, loader)
        if self.broker:
            self.metrics.watch_broker(self.broker, quorum, loader)

    def _open_store(self, path: str) -> KeyValueStore:
        store = self._host.open_store(path)
        self._stores.append(store)
        return store

    def _own_network(self) -> NetworkServer:
        return NetworkServer(ServerLimits.from_config(self.config, self._host.descriptors), self._host.loop_watch)

    async def _serve_rpc(
        self, quorum: QuorumNode, controller: Controller | None, loader: MetadataLoader, identity: NodeIdentity
    ) -> None:
        assert controller is not None
        listener = self.config.controller_listener
        assert listener is not None, "settings are checked before a node starts"
        handlers: dict[Service, Handler | PerConnection] = {
            QUORUM_SERVICE: quorum.handle_request,
            CONTROLLER_SERVICE: PerConnection(controller.open),
        }
        assert self.network is not None
        await self.network.find_hosts()
        stranger = self._entrance(quorum, controller, loader, identity)
        with naming(listener):
            self._rpc_server = await self._transport.serve(listener.host, listener.port, handlers, stranger)

    def _entrance(
        self, quorum: QuorumNode, controller: Controller, loader: MetadataLoader, identity: NodeIdentity
    ) -> Entrance:
        """For clients of Kafka's protocol that come to the controllers' listener."""
        assert self.network is not None
        node = NodeContext(
            config=self.config,
            image=loader.image,
            controller=OwnController(controller.handle),
            quorum=quorum,
            quorum_view=QuorumView(quorum, self._transport, identity.cluster_id),
            node_id=self.config.node_id,
            cluster_id=identity.cluster_id,
            sends_on=False,
        )
        return entrance(self.network, node)

    def _register(self, channel: ControllerChannel, loader: MetadataLoader) -> None:
        listener, endpoint = self.config.controller_listener, self.config.controller_endpoint
        assert listener is not None, "settings are checked before a node starts"
        assert endpoint is not None
        place = (listener.name, Endpoint(*endpoint))
        incarnation_id = random_id(self._host.rng)
        rack = self.config.rack
        node_id = self.config.node_id
        registration = ControllerRegistration(channel, node_id, incarnation_id, place, self._on_fatal, rack)
        registration.start()
        loader.add_publisher(registration)

    def _leader_changed(self) -> None:
        if self._channel:
            self._channel.leader_changed()
        self._contact_lost()

    def _contact_lost(self) -> None:
        if self.broker:
            self.broker.contact_lost()

    def _peer_broken(self, node_id: int) -> None:
        if self.controller:
            self.controller.liveness.peer_broken(node_id)

    def _quorum_failed(self, failure: QuorumFailure) -> None:
        self._on_fatal(failure)

    async def stop(self) -> None:
        """Leaves gracefully: leaderships are handed over, logs flushed and closed. Twice does nothing. Raises what failed first, when all
        that can be is closed."""
        if self._stopped:
            return
        self._stopped = True
        await end_each(self._parts())

    def _parts(self) -> Iterator[Part]:
        if self._metrics_server:
            yield self._metrics_server.close
        if self.broker:
            yield partial(self.broker.stop, STOP_TIMEOUT_S)
        if self._channel:
            yield self._channel.close
        if self.controller:
            yield self.controller.leave
        if self._knocker:
            yield self._knocker.close
        if self.quorum:
            yield partial(self.quorum.stop, graceful=True)
        if self.controller:
            yield self.controller.stop
        if self.network:
            yield self.network.stop
        if self._rpc_server:
            yield self._rpc_server.close
        yield self._transport.close
        yield from self._storage()
        yield self._host.sync_later.close

    def _storage(self) -> Iterator[Part]:
        if self._store_sync:
            yield self._store_sync.stop
        if self._log:
            yield self._log.close
        for store in self._stores:
            yield store.close
        if self._lock:
            yield self._lock.release


class _Fanout:
    """The quorum's listener: the image first, then the controller that decides on it."""

    def __init__(self, loader: MetadataLoader, on_leader_change: Callable[[], None]) -> None:
        self._loader = loader
        self._on_leader_change = on_leader_change
        self.controller: Controller | None = None

    def on_commit(self, batch: CommittedBatch) -> None:
        self._loader.on_commit(batch)
        if self.controller:
            self.controller.on_commit(batch)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self._loader.on_leader_change(leader)
        if self.controller:
            self.controller.on_leader_change(leader)
        self._on_leader_change()

    def on_confirmed(self) -> None:
        self._loader.on_confirmed()

    async def on_snapshot(self, store_path: str | None, offset: int, epoch: int) -> None:
        await self._loader.on_snapshot(store_path, offset, epoch)
        if self.controller:
            self.controller.on_snapshot()


def quorum_settings(config: ServerConfig, identity: NodeIdentity) -> QuorumSettings:
    """What the quorum's part of the node goes by."""
    own = config.controller_endpoint if config.is_controller else None
    return QuorumSettings(
        node_id=config.node_id,
        cluster_id=identity.cluster_id,
        directory_id=identity.metadata_directory_id,
        voters={node: Endpoint(*endpoint) for node, endpoint in config.voters.items()},
        is_voter=config.is_controller,
        initial_voters=identity.initial_voters,
        bootstrap=tuple(Endpoint(*endpoint) for endpoint in config.bootstrap_controllers),
        endpoint=None if own is None else Endpoint(*own),
        hosts=config.hosts,
        election_timeout_ms=config.integer("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=config.integer("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=config.integer("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=config.integer("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.integer("controller.quorum.retry.backoff.ms"),
        fetch_max_bytes=config.integer("controller.quorum.fetch.max.bytes"),
        auto_join=config.flag("controller.quorum.auto.join.enable"),
        snapshot_fetch_max_bytes=config.integer("controller.quorum.fetch.snapshot.max.bytes"),
        snapshots=snapshot_limits(config),
    )


def _controller_settings(config: ServerConfig, identity: NodeIdentity) -> ControllerSettings:
    defaults = {name: server_default(setting, config) for name, setting in topic_settings().items()}
    balance = config.flag("auto.leader.rebalance.enable")
    return ControllerSettings(
        cluster_id=identity.cluster_id,
        node_id=config.node_id,
        num_partitions=config.integer("num.partitions"),
        default_replication_factor=config.integer("default.replication.factor"),
        session_timeout_ms=config.integer("broker.session.timeout.ms"),
        inter_broker_listener=config.inter_broker_listener_name,
        topic_defaults={name: text for name, value in defaults.items() if (text := value_text(value)) is not None},
        config_rules=SettingRules(config),
        rebalance_interval_ms=1000 * config.integer("leader.imbalance.check.interval.seconds") if balance else 0,
        imbalance_percentage=config.integer("leader.imbalance.per.broker.percentage"),
        unclean_interval_ms=config.integer("unclean.leader.election.interval.ms"),
    )


def _log_fatal(error: Exception) -> None:
    logger.critical("the node cannot go on: %s", error)
