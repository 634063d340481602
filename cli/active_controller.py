"""A connection to the active controller, through any of them (KIP-919)."""

from ottla.broker.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.broker.wire.messages.describe_cluster_response import DescribeClusterResponse
from ottla.cli.client import Client, NobodyAnswers
from ottla.cli.failures import CommandError, refuse
from ottla.runtime.settings.endpoints import Endpoint

OPTION = "--bootstrap-controller"
_CONTROLLERS = 2
"""DescribeCluster's endpoint type."""


def connect(controllers: str) -> Client:
    """To the active one of them. While none is, or it is not reached, to another: it will say that it is not the one. Raises
    CommandError when nobody answers."""
    any_of_them = Client(controllers, option=OPTION)
    try:
        active = _active(any_of_them)
        there = any_of_them if active is None else Client(str(active), option=OPTION)
    except NobodyAnswers:
        return any_of_them
    except CommandError:
        any_of_them.close()
        raise
    if there is not any_of_them:
        any_of_them.close()
    return there


def _active(controller: Client) -> Endpoint | None:
    answer = controller.call(DescribeClusterRequest(endpoint_type=_CONTROLLERS), DescribeClusterResponse)
    refuse(answer.error_code, OPTION, answer.error_message)
    found = (each for each in answer.brokers if each.broker_id == answer.controller_id)
    return next((Endpoint(each.host, each.port) for each in found), None)
