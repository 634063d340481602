"""How a simulated crash stops code that is in the middle of a line."""


class SimulatedCrash(BaseException):
    """The machine this code runs on has just died.

    Raised by the disk (and by nothing else) when a crash comes in the middle of a call, and again by every later use
    of a dead process's files. It unwinds the Python stack, since Python cannot drop one; whatever `finally` and
    `except BaseException` do on the way has no effect, because the dead process's disk, network and loop are inert.
    Not an `Exception`, so that a broad `except` of the program does not survive its own death.
    """
