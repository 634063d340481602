"""What this node asks of the others, and which of their answers the core is told."""

import logging
from collections.abc import Callable
from typing import Any

from ottla.quorum import messages_proto
from ottla.quorum.batches import parse_batches
from ottla.quorum.complaints import Complaints
from ottla.quorum.control_records import UnreadableLevelError
from ottla.quorum.peers import Peers
from ottla.quorum.raft.events import Event, ResponseReceived
from ottla.quorum.raft.instructions import SendRequest
from ottla.quorum.raft.messages import Request, Response
from ottla.quorum.raft.state import RaftState
from ottla.quorum.settings import QuorumSettings
from ottla.runtime.errors import ErrorCode, KafkaError

_logger = logging.getLogger(__name__)


class Questions:
    """What this node asks others for the core. ``handle`` takes what was answered, None included; ``fail`` is told why this
    node cannot go on."""

    def __init__(
        self,
        settings: QuorumSettings,
        state: RaftState,
        peers: Peers,
        handle: Callable[[Event], None],
        fail: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._state = state
        self._peers = peers
        self._handle = handle
        self._fail = fail
        self._complaints = Complaints(state)
        self._strangers: dict[int, None] = {}
        self._asked: dict[tuple[int, type[Request]], SendRequest] = {}

    def ask(self, instruction: SendRequest) -> None:
        """The core knows requests by their value; asked again in the same words, only the last asking is answered."""
        peer, request = instruction.peer, instruction.request
        self._asked[peer, type(request)] = instruction
        self._peers.call(
            peer,
            instruction.endpoint,
            messages_proto.request_to_proto(request),
            lambda response: self._answered(instruction, response),
            self._settings.request_timeout_ms,
        )

    def _answered(self, asked: SendRequest, message: Any) -> None:
        peer, request = asked.peer, asked.request
        if self._asked.get((peer, type(request))) is not asked:
            return
        response = self._understood(peer, request, message)
        if response is not None and response.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            response = None  # a stranger's epoch and leader are nothing to us
            self._meet_stranger(peer)
        elif response is not None:
            self._strangers.pop(peer, None)
            self._complaints.answered(peer, request, response)
        self._handle(ResponseReceived(peer, request, response))

    def _understood(self, peer: int, request: Request, message: Any) -> Response | None:
        """An answer that cannot be understood counts as none: it will be asked again."""
        if message is None:
            return None
        try:
            return messages_proto.response_from_proto(message, parse_batches)
        except UnreadableLevelError as error:
            self._fail(error.message)
        except (ValueError, KafkaError) as error:
            _logger.warning("answer of node %d to %s cannot be used: %s", peer, type(request).__name__, error)
        return None

    def _meet_stranger(self, peer: int) -> None:
        """One of another cluster is their mistake; when most voters are, this node is the stranger, and cannot go on."""
        if peer in self._strangers:
            return
        self._strangers[peer] = None
        cluster = self._settings.cluster_id
        _logger.warning("node %d does not belong to this node's cluster %s", peer, cluster)
        known = self._state.voters.latest.ids()
        # Where controllers listened once, and where a setting says that some do, somebody else may by now.
        met = sorted(each for each in self._strangers if each in known or not known)
        if len(met) * 2 > len(known or self._settings.bootstrap):
            names = ", ".join(str(each) for each in met)
            mine = f"this node's log.dirs to cluster {cluster}"
            self._fail(f"voters {names} belong to another cluster, {mine}: give the right log.dirs")
