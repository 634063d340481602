"""What happened in a controller since its process began, for the metrics."""


class ControllerCounters:
    """``activations``: became the active controller; ``errors``: decided what could not be written; ``fenced``: brokers that
    were not heard from."""

    def __init__(self) -> None:
        self.activations = self.errors = self.fenced = 0
