"""Which of the lines that a tool prints are compared."""

from tests.conformance.kafka_tools import Said


def said(*lines: str) -> list[str]:
    return Said({"out": "", "err": "\n".join(lines), "code": 0}).in_common


def test_what_a_client_tries_again_by_itself_does_not_count() -> None:
    when = "2026-11-23 10:00:00,123 WARN"
    assert said(
        f"{when} [Consumer clientId=c-1, groupId=g] The metadata response from the cluster reported a recoverable issue with correlation id 2 : "
        "{t=UNKNOWN_TOPIC_OR_PARTITION} (org.apache.kafka.clients.NetworkClient)",
        f"{when} [AdminClient clientId=adminclient-3] Connection to node 1 (localhost/127.0.0.1:9092) could not be established. "
        "(org.apache.kafka.clients.NetworkClient)",
    ) == ["exit code 0"]


def test_what_a_tool_warns_of_and_every_error_counts() -> None:
    assert said(
        "2026-11-23 10:00:00,123 WARN New offset (100) is higher than latest offset (org.apache.kafka.tools.OffsetsUtils)",
        "2026-11-23 10:00:00,123 ERROR [AdminClient clientId=adminclient-3] Unregister broker request failed (org.apache.kafka.clients.admin.KafkaAdminClient)",
    ) == [
        "TIME ERROR [AdminClient clientId=adminclient-N] Unregister broker request failed (org.apache.kafka.clients.admin.KafkaAdminClient)",
        "TIME WARN New offset (100) is higher than latest offset (org.apache.kafka.tools.OffsetsUtils)",
        "exit code 0",
    ]
