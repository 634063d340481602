"""A plain broker, as its server.properties makes it, among real quorum nodes: whom it fetches the metadata from."""

from random import Random
from typing import Any

from ottla.broker.directories import NodeIdentity
from ottla.broker.server import quorum_settings
from ottla.proto import metadata_pb2 as pb
from ottla.proto import quorum_pb2
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.rack_mates import RackMates
from ottla.quorum.node import QuorumNode
from ottla.quorum.peers import QUORUM_SERVICE
from ottla.quorum.raft.voters import Endpoint
from ottla.runtime.host import Host
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.testing.quorum.memory import MemoryLog, MemoryStore
from tests.unit.quorum.node_world import FixedClock, Listener, Member, World

BROKER = 9
HOSTS = {1: "a", 2: "b", 3: "c", 4: "d", 5: "e"}


class Machines(World):
    """Each voter on a host of its own; ``asked`` is who took the broker's last fetch."""

    def __init__(self, loop: SimulationLoop) -> None:
        super().__init__(loop, len(HOSTS))
        self.endpoints = {node: Endpoint(host, node) for node, host in HOSTS.items()}
        self.asked = -1
        self.broker: QuorumNode
        serve = self.switchboard.serve

        async def listen(_host: str, port: int, handlers: Any) -> Any:
            node = self.members[port].node

            def handle(message: quorum_pb2.QuorumRequest, reply: Any) -> None:
                if message.sender.id == BROKER and message.WhichOneof("body") == "fetch":
                    self.asked = port
                node.handle_request(message, reply)

            return await serve(HOSTS[port], port, {**handlers, QUORUM_SERVICE: handle})

        self.switchboard.serve = listen  # type: ignore[method-assign, assignment]  # in the place of the real one

    async def start_broker(self, *lines: str) -> None:
        voters = ",".join(f"{node}@{host}:{node}" for node, host in HOSTS.items())
        texts = {"process.roles": "broker", "node.id": str(BROKER), "controller.quorum.voters": voters}
        texts |= {"controller.listener.names": "CONTROLLER"} | dict(line.split("=", 1) for line in lines)
        settings = quorum_settings(ServerConfig(texts), NodeIdentity("test", bytes(16), {}))
        host = Host(FixedClock(), Random(3), None, None, None)  # type: ignore[arg-type]  # nothing asks for these
        self.broker = QuorumNode(settings, host, self.switchboard, MemoryLog(), MemoryStore(), Listener())
        await self.broker.start()

    async def a_follower(self, leader: Member) -> Member:
        return next(member for member in self.members.values() if member is not leader)


async def start(world: Machines) -> Member:
    for member in world.members.values():
        await member.start(endpoint=world.endpoints[member.id])
    return await world.leader()


def run(scenario: Any) -> None:
    loop = SimulationLoop(seed=1)
    try:
        loop.run_until_complete(scenario(Machines(loop)))
    finally:
        loop.close()


def test_a_broker_follows_the_voter_on_its_own_host_and_another_when_that_dies() -> None:
    async def scenario(world: Machines) -> None:
        leader = await start(world)
        near = await world.a_follower(leader)
        await world.start_broker(f"listeners=PLAINTEXT://:9092,OTHER://{HOSTS[near.id]}:9094")
        last = leader.node.append([b"x"], leader.node.leader.epoch)
        await world.until(lambda: world.broker.high_watermark > last)
        assert world.asked == near.id

        await near.stop()
        last = leader.node.append([b"y"], leader.node.leader.epoch)
        await world.until(lambda: world.broker.high_watermark > last)
        assert world.asked not in (near.id, leader.id)

        await near.start(endpoint=world.endpoints[near.id])
        await world.until(lambda: world.asked == near.id)

    run(scenario)


def test_a_broker_moves_to_a_voter_of_its_rack_once_the_metadata_names_it() -> None:
    async def scenario(world: Machines) -> None:
        leader = await start(world)
        await world.start_broker("listeners=PLAINTEXT://elsewhere:9092", "broker.rack=r")
        await world.until(lambda: world.broker.leader.leader_id == leader.id)
        mate = next(node for node in HOSTS if node not in (leader.id, world.asked))
        mates = RackMates("r", world.broker.set_rack_mates)
        image, delta = MetadataImage(), MetadataDelta()
        for node in HOSTS:
            record = pb.RegisterController(controller_id=node, rack="r" if node == mate else "s")
            image.apply(pb.MetadataRecord(register_controller=record), delta)
        mates.publish(delta, image)
        await world.until(lambda: world.asked == mate)

    run(scenario)


def test_a_broker_beside_a_controller_says_in_which_rack_that_stands() -> None:
    """A combined node's rack is told by its broker, whoever registered first."""
    told: list[list[int]] = []
    mates = RackMates("r", lambda nodes: told.append(list(nodes)))
    image, delta = MetadataImage(), MetadataDelta()
    for node in (1, 2):
        image.apply(pb.MetadataRecord(register_controller=pb.RegisterController(controller_id=node)), delta)
    mates.publish(delta, image)
    broker = pb.RegisterBroker(broker_id=2, broker_epoch=1, rack="r")
    image.apply(pb.MetadataRecord(register_broker=broker), delta)
    mates.publish(delta, image)
    mates.publish(delta, image)

    assert told == [[2]]
