"""The mark beside ``meta.properties`` that this node once began to take part in a quorum. What it promised there lies in
the metadata directory, and whoever loses that whole directory must not begin again under the same identity, as if it had
promised nothing."""

from ottla.quorum.election_store import QuorumStateError
from ottla.runtime.disk import Disk
from ottla.runtime.identifiers import id_to_text

BEGUN_MARK = "quorum-begun"
QUORUM_STATE = "quorum-state"


class BegunMark:
    """The mark in the directory ``root`` of the identity ``directory_id``: one that was formatted anew has begun nothing."""

    def __init__(self, disk: Disk, root: str, directory_id: bytes) -> None:
        self._disk = disk
        self._path = f"{root}/{BEGUN_MARK}"
        self._identity = id_to_text(directory_id).encode()

    def require_promises(self, metadata_directory: str) -> None:
        """Raises QuorumStateError when they are gone."""
        if self._is_there() and not self._disk.exists(f"{metadata_directory}/{QUORUM_STATE}"):
            raise QuorumStateError(
                f"there is none in {metadata_directory}, and this node has taken part in its quorum before"
            )

    def set(self) -> None:
        """To be called when there is a durable state."""
        if not self._is_there():
            self._disk.write_atomically(self._path, self._identity + b"\n")

    def _is_there(self) -> bool:
        return self._disk.exists(self._path) and self._disk.read_bytes(self._path).strip() == self._identity
