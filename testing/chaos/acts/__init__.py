"""What faults do: each act inflicts, holds, heals, and shows that it happened."""

from collections.abc import Callable

from ottla.testing.chaos.scene import Scene

Act = Callable[[Scene], None]
