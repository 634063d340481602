"""Every node's image against what its own log says, replayed from the beginning or from the first snapshot there is."""

from ottla.broker.directories import METADATA_DIRECTORY
from ottla.quorum.metadata.archive import DirectoryArchive
from ottla.quorum.metadata.history import at
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.simulation.store import SimulatedStore
from ottla.testing.simulation.cluster import DATA, SimulatedCluster


def replayed(platter: Platter, offset: int) -> MetadataImage:
    """The image up to ``offset``, from the files of the metadata log."""
    disk = SimulatedDisk(platter)
    archive = DirectoryArchive(disk, f"{DATA}/{METADATA_DIRECTORY}", lambda path: SimulatedStore(disk, path))
    return at([batch.decoded() for batch in archive.batches()], offset, archive.start)


def odd_images(cluster: SimulatedCluster) -> list[str]:
    """What differs, in words. Every node must run."""
    found: list[str] = []
    images: dict[int, MetadataImage] = {}
    for number, node in cluster.nodes.items():
        server = cluster.running(number)
        assert server is not None
        assert server.broker is not None
        image = server.broker.context.image
        if image != replayed(node.platter, image.offset):
            found.append(f"node {number} has another image at {image.offset} than its log says")
        other = images.setdefault(image.offset, image)
        if image != other:
            found.append(f"node {number} has another image at {image.offset} than another node")
    return found
