"""What keeps a node out of the quorum, said in one line when it begins; the node itself goes on trying. And what to do about what
ends it."""

import logging

from ottla.log.errors import NO_ROOM, DamagedLogError
from ottla.quorum.raft.messages import FetchRequest, FetchSnapshotRequest, Request, Response, VoterChangeResponse
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.voters import ReplicaKey
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import id_to_text

LOST_ITS_LOG = (
    "this controller has lost what it acknowledged and does not start, for it could elect a leader that lacks it. While most of the "
    "other controllers are well, take this one out with ottla quorum remove-controller and let it join anew with an empty "
    "directory; else restore the metadata log from a copy. What is left was not touched: see ottla log dump"
)

HISTORY_GONE = (
    "the disk of a controller went back in time or was replaced, and the others may lack what was committed here. Started again, in the next "
    "epoch at the latest (where it ends again, restart the controller that leads), this node goes by their log, and what that lacks is "
    "lost; stop them and restore their disks if it must not be. See "
    "docs/quorum.md, Lost disks"
)

_logger = logging.getLogger(__name__)


def with_advice(error: BaseException) -> str:
    """What ended the node, and what a person can do about it."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    if isinstance(cause, OSError) and cause.errno in NO_ROOM:
        return f"{error}; make room there, then start it again"
    if isinstance(error, DamagedLogError):
        return f"{error}; the next start says whether it can go on"
    return str(error)


class Complaints:
    """What is wrong, by the answers that it is shown. The same complaint again is not repeated until something else was
    answered in between."""

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._last: dict[str, str] = {}

    def answered(self, peer: int, request: Request, response: Response) -> None:
        if isinstance(response, VoterChangeResponse):
            self._tell("change", self._of_change(peer, request, response))
        elif isinstance(request, FetchRequest | FetchSnapshotRequest):
            self._tell("twin", self._of_fetch(peer, response))
            if response.error is ErrorCode.NONE and response.leader_id == peer:
                self._tell("disk", self._of_disk())
        elif request.receiver is not None:
            self._tell(f"voter {peer}", self._of_voter(request.receiver, response))

    def _tell(self, topic: str, complaint: str | None) -> None:
        """What is to be said now; None: nothing new; empty: all is well."""
        if complaint is None:
            return
        if complaint and complaint != self._last.get(topic):
            _logger.warning("%s", complaint)
        self._last[topic] = complaint

    def _of_change(self, peer: int, request: Request, response: VoterChangeResponse) -> str:
        if response.error is ErrorCode.NONE:
            return ""
        what = type(request).__name__.removesuffix("Request")
        return f"{what} of this node was refused by node {peer}: {response.error.name}: {response.message}"

    def _of_fetch(self, peer: int, response: Response) -> str | None:
        if response.error is ErrorCode.DUPLICATE_VOTER:
            node = self._state.key.id
            return (
                f"node {peer} refuses this process: another one with other log.dirs runs as node {node}; "
                "stop one of the two, or give this one a node.id of its own"
            )
        return "" if response.error is ErrorCode.NONE else None

    def _of_voter(self, meant: ReplicaKey, response: Response) -> str | None:
        """Somebody else answers where a voter is to be reached."""
        if response.error is not ErrorCode.INVALID_VOTER_KEY:
            return "" if response.error is ErrorCode.NONE else None
        endpoint = self._state.voters.latest.endpoint(meant.id)
        place = "where it is to be reached" if endpoint is None else f"at {endpoint.host}:{endpoint.port}"
        directory = "-" if meant.directory_id is None else id_to_text(meant.directory_id)
        return (
            f"voter {meant.id} is not what answers {place}: if its disk was replaced, use ottla quorum remove-controller "
            f"--controller-id {meant.id} --controller-directory-id {directory}, then add-controller for the new one"
        )

    def _of_disk(self) -> str:
        """The voter of this node id has another directory: this node lost its disk, or was formatted anew."""
        state = self._state
        voter = state.voters.latest.get(state.key.id)
        if not state.settings.can_vote or voter is None or voter.key.matches(state.key):
            return ""
        return (
            f"this node does not vote: voter {state.key.id} has another directory id; if that disk is gone, use "
            "ottla quorum remove-controller for it and add-controller for this one"
        )
