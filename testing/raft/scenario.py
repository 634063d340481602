"""Scenarios as text, in the manner of etcd's raft: a command, ``----``, and what the cores answered.

Nothing happens by itself: time stands still, messages wait until they are delivered, syncs until they are ended. Commands:

    start 1 2 3              the nodes come up (all listed in the first start are the voters; others may become voters)
    start auto-join 4        a node comes up that wants to vote
    start bootstrap 4        a node comes up whose configuration names the first voters as bootstrap servers
    move N                   node N, which is down, will come up at another address
    wipe N                   node N, which is down, will come up with an empty disk
    timer N NAME             a timer of node N expires
    deliver A B              the oldest message from A to B arrives (deliver all: until nothing is under way and all synced)
    drop A B                 every message from A to B is lost; a lost request fails at its sender
    sync N                   the oldest sync of node N ends
    append N TEXT...         the application of node N appends a record for each word
    crash N [keep]           node N dies and loses (or keeps) what it had not synced
    disconnect N M           node N sees its stream to M break
    add-voter L N            an administrator asks node L to let node N vote
    remove-voter L N         an administrator asks node L to let node N vote no more
    snapshot N               the application of node N takes a snapshot
    shutdown N | resign N    node N leaves, or its application gives up
    status                   each node's role, epoch, leader, vote, log, high watermark
    log N                    the records of node N
    voters N                 who votes, as node N has it
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ottla.quorum.raft import instructions as do
from ottla.quorum.raft.events import (
    Event,
    LogSynced,
    PeerDisconnected,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    Started,
    TimerExpired,
)
from ottla.quorum.raft.messages import AddVoterRequest, RemoveVoterRequest, Request, Response
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.testing.raft.memory import CONTROL_PAYLOAD, MemoryReplica, Outbox, Storage
from ottla.testing.raft.model.node import NoRandom
from ottla.testing.raft.words import describe_instruction, describe_request, describe_response

AUTO_JOIN, BOOTSTRAP = OPTIONS = ("auto-join", "bootstrap")
ADMINISTRATOR = "administrator"
NOBODY: dict[str, Any] = {"cluster_id": "scenario", "epoch": 0, "sender": ReplicaKey(-1)}
MOVED_BY = 100  # the port of node N is N and a number of moves
PIECE_BYTES = 24
"""Two records of a snapshot."""

Message = tuple[int, int, do.SendRequest, Response | None]


class ScenarioWorld:
    """The nodes of one scenario; ``run`` performs a command and tells what came of it."""

    def __init__(self) -> None:
        self.static = VoterSet()
        self.storages: dict[int, Storage] = {}
        self.replicas: dict[int, MemoryReplica] = {}
        self.syncing: dict[int, list[int]] = {}
        self.messages: list[Message] = []
        self.asked: dict[tuple[int, int, type[Request]], do.SendRequest] = {}
        self.lines: list[str] = []
        self.moved: dict[int, int] = {}  # how often
        self.wiped: dict[int, int] = {}

    def run(self, command: str) -> str:
        self.lines = []
        name, *arguments = command.split()
        handler: Callable[..., None] = getattr(self, f"_do_{name.replace('-', '_')}")
        handler(*arguments)
        return "\n".join(self.lines) or "ok"

    # --- commands -----------------------------------------------------------------------------------------------------

    def _do_start(self, *nodes: str) -> None:
        ids = [int(node) for node in nodes if node not in OPTIONS]
        if not self.static.voters:
            self.static = VoterSet.of(Voter(ReplicaKey(node), Endpoint(f"n{node}", node)) for node in ids)
        for node in ids:
            storage = self.storages.setdefault(node, Storage(self.static))
            self.replicas[node] = MemoryReplica(
                self._settings(nodes),
                self._key(node),
                self._endpoint(node),
                NoRandom(0),
                storage,
            )
            self.syncing[node] = []
            self._handle(node, Started())

    def _settings(self, options: Sequence[str]) -> RaftSettings:
        return RaftSettings(
            cluster_id="scenario",
            snapshot_max_bytes=PIECE_BYTES,
            auto_join=AUTO_JOIN in options,
            bootstrap=tuple(voter.endpoint for voter in self.static.voters) if BOOTSTRAP in options else (),
        )

    def _key(self, node: int) -> ReplicaKey:
        return ReplicaKey(node, bytes([node, self.wiped.get(node, 0)]) * 8)

    def _endpoint(self, node: int) -> Endpoint:
        return Endpoint(f"n{node}", node + MOVED_BY * self.moved.get(node, 0))

    def _do_move(self, node: str) -> None:
        assert int(node) not in self.replicas, "it moves while it is down"
        self.moved[int(node)] = self.moved.get(int(node), 0) + 1

    def _do_wipe(self, node: str) -> None:
        assert int(node) not in self.replicas, "it is wiped while it is down"
        self.wiped[int(node)] = self.wiped.get(int(node), 0) + 1
        del self.storages[int(node)]

    def _do_timer(self, node: str, name: str) -> None:
        timer = Timer(name)
        assert timer in self.replicas[int(node)].core.state.timers, f"node {node} has no {name} timer"
        self._handle(int(node), TimerExpired(timer))

    def _do_deliver(self, *route: str) -> None:
        if route == ("all",):
            self._settle()
            return
        source, target = map(int, route)
        message = next(message for message in self.messages if message[:2] == (source, target))
        self.messages.remove(message)
        self._deliver(message)

    def _settle(self) -> None:
        for _ in range(1000):
            busy = next((node for node, syncs in self.syncing.items() if syncs), None)
            if busy is not None:
                self._do_sync(str(busy))
            elif self.messages:
                self._deliver(self.messages.pop(0))
            else:
                return
        raise AssertionError("the scenario never comes to rest")

    def _do_drop(self, source: str, target: str) -> None:
        lost = [message for message in self.messages if message[:2] == (int(source), int(target))]
        self.messages = [message for message in self.messages if message not in lost]
        for _, _, asked, response in lost:
            self._answer(int(source) if response is None else int(target), asked, None)

    def _do_sync(self, node: str) -> None:
        number = int(node)
        end = self.syncing[number].pop(0)
        storage = self.storages[number]
        storage.durable_end = max(storage.durable_end, min(end, storage.end))
        self._handle(number, LogSynced(end))

    def _do_append(self, node: str, *words: str) -> None:
        replica = self.replicas[int(node)]
        self._handle(int(node), replica.append_event([word.encode().ljust(8)[:8] for word in words]))

    def _do_crash(self, node: str, keep: str = "") -> None:
        number = int(node)
        self.storages[number].crash(1.0 if keep else 0.0)
        del self.replicas[number]
        self.syncing[number] = []
        self.messages = [message for message in self.messages if message[1] != number]

    def _do_disconnect(self, node: str, peer: str) -> None:
        self._handle(int(node), PeerDisconnected(int(peer)))

    def _do_shutdown(self, node: str) -> None:
        self._handle(int(node), ShutdownRequested())

    def _do_resign(self, node: str) -> None:
        self._handle(int(node), ResignRequested(self.replicas[int(node)].core.state.epoch))

    def _do_add_voter(self, leader: str, node: str) -> None:
        number = int(node)
        self._administer(leader, AddVoterRequest(voter=self._key(number), endpoint=self._endpoint(number), **NOBODY))

    def _do_remove_voter(self, leader: str, node: str) -> None:
        self._administer(leader, RemoveVoterRequest(voter=self._key(int(node)), **NOBODY))

    def _administer(self, leader: str, request: Request) -> None:
        self._handle(int(leader), RequestReceived(request, ADMINISTRATOR))

    def _do_snapshot(self, node: str) -> None:
        event = self.replicas[int(node)].snapshot_event()
        assert event is not None, "nothing is committed since the last one"
        self.lines.append(f"  {node} has a snapshot at {event.snapshot.offset}, its log begins at {event.log_start}")
        self._handle(int(node), event)

    def _do_voters(self, node: str) -> None:
        voters = self.replicas[int(node)].core.state.voters
        known = " ".join(f"{voter.key.id}@{voter.endpoint.port}" for voter in voters.latest.voters)
        self.lines.append(f"{known} since {voters.latest_offset}")

    def _do_status(self) -> None:
        for number, replica in sorted(self.replicas.items()):
            state = replica.core.state
            voted = "" if state.role.voted is None else f" voted {state.role.voted.id}"
            log = f"log {state.log.start}-{state.log.end} synced {state.log.durable_end} hw {state.high_watermark}"
            role = type(state.role).__name__
            self.lines.append(f"{number}: {role} epoch {state.epoch} leader {state.known_leader_id}{voted} {log}")

    def _do_log(self, node: str) -> None:
        storage = self.storages[int(node)]
        for offset, entry in enumerate(storage.entries, storage.start):
            text = "(control)" if entry.payload == CONTROL_PAYLOAD else entry.payload.decode().strip()
            self.lines.append(f"{offset}: epoch {entry.epoch} {text}")

    # --- events -------------------------------------------------------------------------------------------------------

    def _deliver(self, message: Message) -> None:
        source, target, asked, response = message
        if target not in self.replicas or (response is None and asked.endpoint != self._endpoint(target)):
            self.lines.append(f"{source} -> {target}: nobody there")
            if response is None:
                self._answer(source, asked, None)
        elif response is None:
            self.lines.append(f"{source} -> {target}: {describe_request(asked.request)}")
            self._handle(target, RequestReceived(asked.request, (source, asked)))
        else:
            self.lines.append(f"{source} -> {target}: {describe_response(response)}")
            self._answer(target, asked, response)

    def _answer(self, node: int, asked: do.SendRequest, response: Response | None) -> None:
        """Asked again in the same words, a transport still tells the two answers apart."""
        latest = self.asked.get((node, asked.peer, type(asked.request)))
        if node in self.replicas and latest is asked:
            self._handle(node, ResponseReceived(asked.peer, asked.request, response))

    def _handle(self, node: int, event: Event) -> None:
        replica = self.replicas[node]
        before = type(replica.core.state.role).__name__, replica.core.state.epoch
        outbox = Outbox()
        for instruction in replica.core.handle(event, 0):
            replica.perform(instruction, outbox)
            self._tell(node, instruction)
        after = type(replica.core.state.role).__name__, replica.core.state.epoch
        if after != before:
            self.lines.append(f"  {node} is {after[0]} of epoch {after[1]}")
        for send in outbox.requests:
            self.asked[node, send.peer, type(send.request)] = send
            self.messages.append((node, send.endpoint.port % MOVED_BY, send, None))
        for token, response in outbox.responses:
            self._respond(node, token, response)
        self.syncing[node] += outbox.syncs
        for following in outbox.events:
            self._handle(node, following)
        if Timer.RETRY in replica.core.state.timers and isinstance(event, ResponseReceived) and event.response is None:
            self.lines.append(f"  {node} backs off")

    def _respond(self, node: int, token: Any, response: Response) -> None:
        if token is ADMINISTRATOR:
            self.lines.append(f"  the administrator is told {describe_response(response)}")
        else:
            self.messages.append((node, token[0], token[1], response))

    def _tell(self, node: int, instruction: do.Instruction) -> None:
        text = describe_instruction(instruction)
        if text:
            self.lines.append(f"  {node} {text}")


def run_scenario(text: str) -> str:
    """The scenario with every answer as it is now."""
    world = ScenarioWorld()
    out = []
    for block in _blocks(text.splitlines()):
        out.append(block)
        commands = [line for line in block.splitlines() if line and not line.startswith("#")]
        if commands:
            answers = [world.run(command) for command in commands]
            out[-1] = block + "\n----\n" + "\n".join(answers)
    return "\n\n".join(out) + "\n"


def _blocks(lines: Iterable[str]) -> Iterable[str]:
    """The parts before each ``----``; what follows it, up to an empty line, is the old answer."""
    current: list[str] = []
    in_answer = False
    for line in [*lines, ""]:
        if line == "----":
            in_answer = True
        elif line == "":
            if current:
                yield "\n".join(current)
            current, in_answer = [], False
        elif not in_answer:
            current.append(line)


def check_scenario(path: Path, *, rewrite: bool) -> None:
    """Raises AssertionError when the answers are others than those in the file; with ``rewrite``, changes the file instead."""
    expected = path.read_text()
    found = run_scenario(expected)
    if rewrite:
        path.write_text(found)
    else:
        assert found == expected, f"{path.name} answers otherwise; rewrite it only if you understand why"


__all__ = ["ScenarioWorld", "check_scenario", "run_scenario"]
