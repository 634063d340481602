"""Every node's image against what its own log says, replayed from the beginning or from the first snapshot there is."""

from typing import NamedTuple

from ottla.broker.directories import METADATA_DIRECTORY
from ottla.quorum.batches import committed_batches
from ottla.quorum.metadata.archive import DirectoryArchive
from ottla.quorum.metadata.history import at
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.simulation.store import SimulatedStore
from ottla.testing.simulation.cluster import DATA, SimulatedCluster


class History(NamedTuple):
    """What the files of a metadata log say: from an image on, or from the beginning. Batches as they stand there."""

    start: MetadataImage | None
    batches: list[tuple[int, bytes]]

    @classmethod
    def of(cls, platter: Platter) -> "History":
        """Read from the disk."""
        disk = SimulatedDisk(platter)
        archive = DirectoryArchive(disk, f"{DATA}/{METADATA_DIRECTORY}", lambda path: SimulatedStore(disk, path))
        return cls(archive.start, [(batch.header.base_offset, bytes(batch.data)) for batch in archive.batches()])

    def replayed(self, offset: int) -> MetadataImage:
        """The image up to ``offset``."""
        return at([next(committed_batches(data, base)) for base, data in self.batches], offset, self.start)


def odd_images(cluster: SimulatedCluster) -> list[str]:
    """What differs, in words. Every node must run."""
    found: list[str] = []
    images: dict[int, MetadataImage] = {}
    replays: list[tuple[History, int, MetadataImage]] = []  # most nodes have the same, and one replay does
    for number, node in cluster.nodes.items():
        server = cluster.running(number)
        assert server is not None
        assert server.broker is not None
        image = server.broker.context.image
        history = History.of(node.platter)
        due = next((each for known, end, each in replays if end == image.offset and known == history), None)
        if due is None:
            due = history.replayed(image.offset)
            replays.append((history, image.offset, due))
        if image != due:
            found.append(f"node {number} has another image at {image.offset} than its log says")
        other = images.setdefault(image.offset, image)
        if image != other:
            found.append(f"node {number} has another image at {image.offset} than another node")
    return found
