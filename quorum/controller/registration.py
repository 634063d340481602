"""A controller tells the active one what it can read and where it listens, in each of its lives (kraft.md 2.9)."""

import logging
from collections.abc import Callable

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.channel import ControllerChannel
from ottla.quorum.controller.decisions.features import supported_ranges
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.raft.voters import Endpoint
from ottla.runtime.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

TIMEOUT_MS = 30_000


class ControllerRegistration:
    """Asks until it is answered or the channel is closed. A controller that cannot read the cluster's metadata is told so, and ``on_refused``.

    As `MetadataPublisher` it sees when it was forgotten (cut off from the quorum for a while), and registers again."""

    def __init__(
        self,
        channel: ControllerChannel,
        controller_id: int,
        incarnation_id: bytes,
        listener: tuple[str, Endpoint],
        on_refused: Callable[[KafkaError], None],
        rack: str | None = None,
    ) -> None:
        name, endpoint = listener
        self._channel = channel
        self._on_refused = on_refused
        self._is_asking = self._is_forgotten = False
        self._request = rpc.RegisterControllerRequest(
            controller_id=controller_id,
            incarnation_id=incarnation_id,
            endpoints=[pb.Endpoint(name=name, host=endpoint.host, port=endpoint.port)],
            features=supported_ranges(),
            rack=rack,
        )

    def start(self) -> None:
        """Registers, however long it takes until somebody leads."""
        self._is_asking, self._is_forgotten = True, False
        origin = f"controller {self._request.controller_id}"
        request = rpc.ControllerRequest(register_controller=self._request, origin=origin)
        self._channel.call_back(request, self._answered, TIMEOUT_MS)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        node_id = self._request.controller_id
        if node_id in delta.controllers and node_id not in image.controllers:
            self._is_forgotten = True
            if not self._is_asking:
                self._start_again()

    def _start_again(self) -> None:
        logger.info("this controller was forgotten: registering again")
        self.start()

    def _answered(self, response: rpc.ControllerResponse | None) -> None:
        self._is_asking = False
        if response is None:
            if not self._channel.closed:
                self.start()
        elif response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            message = f"controller {self._request.controller_id} cannot register: {response.error_message}"
            self._on_refused(KafkaError(ErrorCode.UNSUPPORTED_VERSION, message))
        elif response.error_code:
            logger.warning("this controller could not register: %s", response.error_message)
        elif self._is_forgotten:
            self._start_again()  # the answer may be one of before
