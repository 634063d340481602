"""Brokers start, register, send heartbeats, and stop in order, as the product's do (`broker/cluster/`)."""

from typing import Any

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.features import supported_ranges
from ottla.runtime.errors import ErrorCode
from ottla.testing.decisions.brokers import NONE, Broker, Process
from ottla.testing.decisions.cluster import Cluster
from ottla.testing.decisions.controller import CLUSTER_ID

UNKNOWN_BROKER = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


def start(cluster: Cluster, broker: Broker) -> None:
    """Where no process runs."""
    if broker.process is not None:
        return
    process = broker.start()
    if process is not None:
        cluster.promises.note_losses()
        cluster.say(
            "starts", broker.id, "after", process.previous_epoch, "without", len(process.missing), "directories"
        )
        _register(cluster, broker, process)


def _register(cluster: Cluster, broker: Broker, process: Process) -> None:
    request = rpc.RegisterBrokerRequest(
        broker_id=broker.id,
        incarnation_id=bytes([broker.id, process.number % 256]) * 8,
        cluster_id=CLUSTER_ID,
        features=supported_ranges(),
        directories=process.directories,
        previous_broker_epoch=process.previous_epoch,
    )
    request.endpoints.add(name="PLAINTEXT", host="localhost", port=9000 + broker.id)

    def answered(response: Any, _: int) -> None:
        process.is_registering = False
        if broker.process is process and response is not None:
            process.epoch = response.broker_epoch

    process.is_registering = True
    cluster.controller.ask(rpc.ControllerRequest(register_broker=request), answered)


def beat(cluster: Cluster, broker: Broker) -> None:
    """A heartbeat, unless one is under way; who is not registered, or not any more, registers."""
    process = broker.process
    if process is None or _waits_with_heartbeat(cluster, broker.id):
        return
    if process.epoch == NONE:
        if not process.is_registering:
            _register(cluster, broker, process)
        return
    request = rpc.BrokerHeartbeatRequest(
        broker_id=broker.id,
        broker_epoch=process.epoch,
        current_metadata_offset=len(cluster.controller.log) - 1,
        want_shut_down=process.is_leaving,
        offline_directories=process.offline,
    )

    def answered(response: Any, error: int) -> None:
        if broker.process is not process:
            return
        if error in UNKNOWN_BROKER:
            process.epoch = NONE
        elif response is not None and response.should_shut_down and process.is_leaving:
            stop(cluster, broker)

    cluster.controller.ask(rpc.ControllerRequest(broker_heartbeat=request), answered)


def _waits_with_heartbeat(cluster: Cluster, broker_id: int) -> bool:
    beats = (each.request.broker_heartbeat for each in cluster.controller.waiting)
    return any(each.broker_id == broker_id for each in beats)  # of other requests it is empty


def stop(cluster: Cluster, broker: Broker) -> None:
    """In order, whether the controller let it go or not."""
    broker.stop()
    cluster.say("stopped in order:", broker.id, "which leaves", list(broker.disks.clean.values()))


def everybody_beats(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        beat(cluster, broker)
