"""What the source cannot do, in one line that says what to do instead."""

from ottla.pipeline.wire.errors import ClientError


class OptionError(ClientError, ValueError):
    """An option that cannot be what it is."""


class OffsetError(ClientError):
    """Offsets that are not what a query was told, or none at all."""


class LossError(ClientError):
    """Records are gone that were to be read, and the query may not go on without them."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what}; option failOnDataLoss=false goes on without"
