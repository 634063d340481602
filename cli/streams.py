"""Standard streams that whoever called left closed (``ottla ... >&-``)."""

import os
import sys
from typing import Final

STREAMS: Final = (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_WRONLY, "w"), ("stderr", os.O_WRONLY, "w"))
"""By their numbers."""


def replace_closed_streams() -> None:
    """Nothing comes from them and nothing is kept of what goes there, as of /dev/null. Called before anything is opened: the first socket
    or file would have the number of one that is closed, and get what a library prints."""
    for name, way, mode in STREAMS:
        if getattr(sys, name) is None:
            number = os.open(os.devnull, way)  # the lowest that is free, which is the stream's own
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115 - for as long as the process


def was_closed(name: str) -> bool:
    """Of ``stdin``, ``stdout``, ``stderr``: where it matters that nothing is read or printed."""
    return getattr(sys, f"__{name}__") is None
