"""Which controllers stand in this node's rack, as they and the brokers beside them registered (``broker.rack``)."""

from collections.abc import Callable, Iterable

from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage


class RackMates:
    """`MetadataPublisher` that tells who they are whenever that changes."""

    def __init__(self, rack: str, tell: Callable[[Iterable[int]], None]) -> None:
        self._rack = rack
        self._tell = tell
        self._known: list[int] = []

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if not delta.controllers and not delta.brokers:
            return
        mates = [node_id for node_id in image.controllers if _rack_of(image, node_id) == self._rack]
        if mates != self._known:
            self._known = mates
            self._tell(mates)


def _rack_of(image: MetadataImage, node_id: int) -> str | None:
    broker = image.brokers.get(node_id)
    return image.controllers[node_id].rack or (broker.rack if broker is not None else None)
