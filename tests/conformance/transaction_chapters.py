"""What Kafka's tools for transactions, and its copier, are asked."""

import json
from collections.abc import Callable

from confluent_kafka import Producer

from ottla.testing.processes import wait_for
from tests.conformance.conftest import fill
from tests.conformance.kafka_tools import Broker, in_common

TOPIC = "ledger"
PARTITIONS, RECORDS = 2, 20
EMPTY, ONGOING = 0, 1
FORMATTER = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"


def transactions(broker: Broker, *commands: str) -> None:
    for words in commands:
        broker.ask("transactions", words)


def open_transaction(broker: Broker, transactional_id: str) -> Producer:
    """It has written to both partitions."""
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id}
    producer = Producer(settings | {"transaction.timeout.ms": 120_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, b"open", partition=partition)
    assert producer.flush(30) == 0
    return producer


def wait_until_ended(broker: Broker) -> None:
    """A producer is told of the end when it is decided, before it is written everywhere."""
    wait_for(lambda: "Prepare" not in broker.tools.run("transactions", *broker.where, "list").out, "ended transactions")


def of_open_and_ended_transactions(broker: Broker) -> None:
    fill(broker.bootstrap, TOPIC, PARTITIONS, RECORDS)
    transactions(broker, "list", "describe --transactional-id nobody")
    producer = open_transaction(broker, "payments")
    transactions(broker, "list", "list --transactional-id-pattern pay.*", "list --transactional-id-pattern x.*")
    transactions(broker, "list --duration-filter 3600000", "list --duration-filter 0")
    transactions(broker, "describe --transactional-id payments")
    transactions(broker, f"describe-producers --topic {TOPIC} --partition 0")
    transactions(broker, f"find-hanging --topic {TOPIC} --partition 0", "find-hanging --broker-id 1")
    transactions(broker, f"find-hanging --topic {TOPIC} --max-transaction-timeout 0")
    broker.ask("get-offsets", f"--topic {TOPIC}")
    producer.commit_transaction(30)
    wait_until_ended(broker)
    transactions(broker, "list", f"describe-producers --topic {TOPIC} --partition 1")
    producer.begin_transaction()
    producer.produce(TOPIC, b"aborted", partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    wait_until_ended(broker)
    transactions(broker, "list", "describe --transactional-id payments")
    transactions(broker, f"describe-producers --topic {TOPIC} --partition 0")


def of_forced_ends(broker: Broker) -> None:
    producer = open_transaction(broker, "stuck")
    transactions(broker, f"abort --topic {TOPIC} --partition 0 --start-offset 0")
    transactions(broker, f"abort --topic {TOPIC} --partition 0 --start-offset 14")
    transactions(broker, "forceTerminateTransaction --transactionalId stuck", "list")
    transactions(broker, f"describe-producers --topic {TOPIC} --partition 1")
    del producer


def of_the_copier(broker: Broker) -> None:
    copier = (
        f"--input-topic originals --input-partition 0 --output-topic copy --broker-list {broker.bootstrap} --transaction-size 4"
        " --transactional-id copier --consumer-group copiers --use-group-metadata"
    )
    fill(broker.bootstrap, "originals", 1, 10)  # the copier counts markers as messages that are still to come
    fill(broker.bootstrap, "copy", 1, 0)
    said = broker.tools.run("transactional-message-copier", *copier.split())
    assert said.code == 0, said.err
    read = "--topic copy --from-beginning --isolation-level read_committed --timeout-ms 3000 --group readers-of-copy"
    wait_until_ended(broker)
    broker.ask("console-consumer", read)
    broker.ask("consumer-groups", "--describe --group copiers")
    transactions(broker, "list", "describe --transactional-id copier")


def of_the_transactions_topic(broker: Broker) -> None:
    """Kafka's formatter reads what we write: each record of each partition."""
    words = "--topic __transaction_state --from-beginning --timeout-ms 3000 --group watching"
    how = f"--formatter {FORMATTER} --command-property enable.auto.commit=false"
    said = broker.tools.run("console-consumer", *broker.where, *words.split(), *how.split())
    records = said.out.replace("}{", "}\n{").splitlines()
    broker.answers.append((FORMATTER, sorted(filter(None, map(_record, records)))))


def _record(line: str) -> str:
    """In one order, without what Kafka notes beside and nobody needs: the id before an id that did not change, the version of a
    client whose transaction is over. Empty: one that says what has been added so far, in an order that is the client's."""
    record = json.loads(line)
    value = record["value"]["data"]
    if value["transactionStatus"] == ONGOING and record["key"]["data"]["transactionalId"] == "copier":
        return ""
    partitions = value["transactionPartitions"] or []
    partitions.sort(key=lambda each: each["topic"])
    for each in partitions:
        each["partitionIds"].sort()
    if value.get("previousProducerId") == value["producerId"]:
        del value["previousProducerId"]
    if value["transactionStatus"] == EMPTY:
        value.pop("clientTransactionVersion", None)
    return in_common(json.dumps(record))


CHAPTERS: tuple[Callable[[Broker], None], ...] = (
    of_open_and_ended_transactions, of_forced_ends, of_the_copier, of_the_transactions_topic,
)  # fmt: skip
