"""Why records are not in a topic. Made of their facts alone, as all of a client's errors are."""

from ottla.pipeline.wire.errors import ClientError


class ProducerError(ClientError):
    """Nothing of the transaction is seen; without one, some of the records may be."""


class FencedError(ProducerError):
    """Another producer with this transactional id took over."""


class TransactionTooLongError(ProducerError):
    """The coordinator aborted the transaction: it was open for longer than it may be."""


class RecordTooLargeError(ProducerError):
    """A record is larger than the client or the topic allows."""


class RefusedError(ProducerError):
    """The cluster does not take the records, and will not the next time either."""


class DeliveryTimeoutError(ProducerError):
    """The cluster did not take the records in time, and might later."""
