"""UnregisterBroker: sent on to the controller."""

from ottla.broker.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.broker.wire.messages.unregister_broker_response import UnregisterBrokerResponse
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site


def answered(site: Site, told: controller_pb2.ControllerResponse | None) -> UnregisterBrokerResponse:
    site.send(UnregisterBrokerRequest(7), 0)
    assert site.controller.request.unregister_broker.broker_id == 7
    site.controller.answer(told)
    response: UnregisterBrokerResponse = site.received("UnregisterBrokerResponse", 0)
    return response


def test_a_broker_is_unregistered_by_the_controller(site: Site) -> None:
    told = controller_pb2.ControllerResponse(unregister_broker=controller_pb2.UnregisterBrokerResponse())
    response = answered(site, told)

    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)


def test_what_the_controller_refuses_is_told(site: Site) -> None:
    told = controller_pb2.ControllerResponse(error_code=102, error_message="broker 7 is not registered")
    response = answered(site, told)

    assert (response.error_code, response.error_message) == (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "broker 7 is not registered",
    )


def test_a_controller_that_does_not_answer_is_told_as_that(site: Site) -> None:
    assert answered(site, None).error_code == ErrorCode.REQUEST_TIMED_OUT
