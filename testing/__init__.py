"""What you import in your tests: `Cluster`, a whole Ottla cluster in your process."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> Any:
    # Importing the broker takes a tenth of a second: only who asks for a cluster pays for it.
    if name == "Cluster":
        from ottla.testing.cluster import Cluster

        return Cluster
    raise AttributeError(name)
