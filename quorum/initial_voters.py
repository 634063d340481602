"""The voters that a directory was formatted with (KIP-853): in force until the log brings a voter set of its own.

Kafka keeps them in a bootstrap snapshot at offset 0; here they are a JSON file beside ``meta.properties``, for people to read.
"""

import msgspec

from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.runtime.disk import Disk
from ottla.runtime.identifiers import id_from_text, id_to_text

INITIAL_VOTERS = "initial-controllers.json"


class InitialVotersError(Exception):
    """The file cannot be read; the message names it."""


class _Entry(msgspec.Struct, rename={"node_id": "node.id", "directory_id": "directory.id"}):
    node_id: int
    directory_id: str
    host: str
    port: int


def write_initial_voters(disk: Disk, directory: str, voters: VoterSet) -> None:
    """Durable when it returns. The directory ids must be known."""
    entries = [
        _Entry(voter.key.id, id_to_text(voter.key.directory_id or b""), *voter.endpoint) for voter in voters.voters
    ]
    data = msgspec.json.format(msgspec.json.encode(entries), indent=2) + b"\n"
    disk.write_atomically(f"{directory}/{INITIAL_VOTERS}", data)


def read_initial_voters(disk: Disk, directory: str) -> VoterSet | None:
    """The voters the directory was formatted with; None: without any. Raises InitialVotersError."""
    path = f"{directory}/{INITIAL_VOTERS}"
    if not disk.exists(path):
        return None
    try:
        entries = msgspec.json.decode(disk.read_bytes(path), type=list[_Entry])
        return VoterSet.of(
            Voter(ReplicaKey(each.node_id, id_from_text(each.directory_id)), Endpoint(each.host, each.port))
            for each in entries
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise InitialVotersError(f"{path} cannot be read ({error}): restore it or format the directory anew") from error
