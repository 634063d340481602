"""A connection to the active controller, through any of them (KIP-919)."""

from ottla.broker.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.broker.wire.messages.describe_cluster_response import DescribeClusterResponse
from ottla.cli.client import Client, ConnectionLost, NobodyAnswers
from ottla.cli.failures import CommandError, refuse
from ottla.runtime.settings.endpoints import Endpoint

OPTION = "--bootstrap-controller"
GREETING_S = 3.0
"""For the active controller's first answer: one that is dead, or stopped, still takes connections where a kernel or a proxy does, and others
name it until they have elected another."""
_CONTROLLERS = 2
"""DescribeCluster's endpoint type."""


def connect(controllers: str) -> Client:
    """To the active one of them. While none is, or it does not answer, to another: it will say that it is not the one. Raises
    CommandError when nobody answers."""
    any_of_them = Client(controllers, option=OPTION)
    try:
        active = _active(any_of_them)
    except CommandError:
        any_of_them.close()
        raise
    if active is None:
        return any_of_them
    try:
        there = Client(str(active), option=OPTION, greeting_s=GREETING_S)
    except (NobodyAnswers, ConnectionLost):
        return any_of_them
    any_of_them.close()
    return there


def _active(controller: Client) -> Endpoint | None:
    answer = controller.call(DescribeClusterRequest(endpoint_type=_CONTROLLERS), DescribeClusterResponse)
    refuse(answer.error_code, OPTION, answer.error_message)
    found = (each for each in answer.brokers if each.broker_id == answer.controller_id)
    return next((Endpoint(each.host, each.port) for each in found), None)
