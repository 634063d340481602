#!/usr/bin/env python3
"""Committed metadata changes per second: topic config changes and topic creations, one at a time and 64 in flight.

metadata BOOTSTRAP [SECONDS]   one JSON line. Needs confluent-kafka.
"""

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

Send = Callable[[int], "Future[None]"]


def rate(seconds: float, in_flight: int, send: Send) -> float:
    done, start, n = 0, time.monotonic(), 0
    pending: list[Future[None]] = []
    while time.monotonic() - start < seconds:
        while len(pending) < in_flight:
            pending.append(send(n))
            n += 1
        pending.pop(0).result(60)
        done += 1
    for future in pending:
        future.result(60)
    return (done + len(pending)) / (time.monotonic() - start)


def main() -> None:
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 5
    admin = AdminClient({"bootstrap.servers": sys.argv[1]})
    run = time.time_ns()
    base = f"meta-{run}"
    admin.create_topics([NewTopic(base, 1, 1)])[base].result(60)

    def alter(n: int) -> Future[None]:
        entry = ConfigEntry("retention.ms", str(1_000_000 + n), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, base, incremental_configs=[entry])
        return admin.incremental_alter_configs([resource])[resource]

    def create(kind: str) -> Send:
        def send(n: int) -> Future[None]:
            name = f"{base}-{kind}-{n}"
            return admin.create_topics([NewTopic(name, 1, 1)])[name]

        return send

    figures = {
        "alter_1": rate(seconds, 1, alter),
        "alter_64": rate(seconds, 64, alter),
        "create_1": rate(seconds, 1, create("a")),
        "create_64": rate(seconds, 64, create("b")),
    }
    print(json.dumps({key: round(value) for key, value in figures.items()}))


main()
