"""A node's settings as they are now: its file, and over it what was set at run time for all nodes and for this one.

A metadata publisher. What the topics' defaults are is not its concern (`ottla.broker.topic_config`); it tells the parts of the
broker that read the rest (`ottla.runtime.settings.dynamic.APPLIED`).
"""

import logging
from collections.abc import Callable

from ottla.broker.topic_config import concern_node, dynamic_texts
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.settings.definitions import server_settings
from ottla.runtime.settings.dynamic import APPLIED, WITHOUT_EFFECT, readable
from ottla.runtime.settings.server import ServerConfig

logger = logging.getLogger(__name__)

_NAMES = (*APPLIED, *WITHOUT_EFFECT)


class NodeSettings:
    """The node's settings, dynamic ones included. ``current`` is the configuration to go by; `on_change` tells of another
    one."""

    def __init__(self, config: ServerConfig, image: MetadataImage) -> None:
        """``image``: as this node has it at its start, which may be old; the rest comes with `publish`."""
        self._file = config
        self._appliers: list[Callable[[ServerConfig], None]] = []
        self.current = self._read(image)

    def on_change(self, apply: Callable[[ServerConfig], None]) -> None:
        """``apply`` is told of every change from now on."""
        self._appliers.append(apply)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if not concern_node(delta.configs, self._file.node_id):
            return
        before, self.current = self.current, self._read(image)
        changed = [name for name in _NAMES if before.get(name) != self.current.get(name)]
        for name in changed:
            why = f": it changes nothing here, {WITHOUT_EFFECT[name]}" if name in WITHOUT_EFFECT else ""
            logger.info("%s is %s from now on%s", name, self.current.get(name), why)
        if changed:
            for apply in self._appliers:
                apply(self.current)

    def _read(self, image: MetadataImage) -> ServerConfig:
        """The configuration, without the defaults of topics: a part that took them from here would not hear when they go."""
        texts = dynamic_texts(image.configs, self._file.node_id)
        own = {name: texts[name] for name in _NAMES if name in texts}
        return self._file.changed(readable(own, server_settings()))
