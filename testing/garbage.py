"""What is left to Python's collector: cycles, which code that is run for each request or client must break itself (`runtime/garbage.py`)."""

import gc
from collections.abc import Callable


def left_by(action: Callable[[], object]) -> list[str]:
    """The names of the classes of ours of which ``action`` leaves objects that nobody refers to and that live on."""
    gc.collect()
    flags = gc.get_debug()
    gc.disable()
    try:
        action()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return sorted({type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith("ottla.")})
    finally:
        gc.set_debug(flags)
        gc.garbage.clear()
        gc.enable()
