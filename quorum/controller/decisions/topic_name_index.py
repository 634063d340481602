"""Topic names that look alike: metrics write ``.`` as ``_``, so two names that differ only there must not both exist."""

from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage


def _has_collision_letters(name: str) -> bool:
    return "." in name or "_" in name


class TopicNameIndex:
    """Built at the first name that could collide; from then on it follows the deltas."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._names: dict[str, str] | None = None

    def collision(self, name: str) -> str | None:
        """A topic whose name cannot be told from ``name``, if there is one."""
        if not _has_collision_letters(name):
            return None
        if self._names is None:
            self._names = {}
            for known in self._image.topics_by_name:
                self._add(known)
        return self._names.get(name.replace(".", "_"))

    def _add(self, name: str) -> None:
        assert self._names is not None
        if _has_collision_letters(name):
            self._names[name.replace(".", "_")] = name

    def update(self, delta: MetadataDelta) -> None:
        """Follows what was just applied to the image."""
        if self._names is None:
            return
        for topic in delta.deleted_topics.values():
            self._names.pop(topic.name.replace(".", "_"), None)
        for name in delta.created_topics.values():
            self._add(name)
