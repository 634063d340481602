"""Which jobs there are, listed without importing them."""

from ottla.cli.lazy import Table

JOBS: Table = {
    "ingest": ("ottla.pipeline.jobs.ingest", "ingest", "Land topics in a table, each record exactly once."),
    "aggregate": ("ottla.pipeline.jobs.aggregate", "aggregate", "Count and average records by windows of event time."),
    "snapshot": ("ottla.pipeline.jobs.snapshot", "snapshot", "Make a table of the latest record of each key."),
    "replay": ("ottla.pipeline.jobs.replay", "replay", "Send a table's rows to a topic, in order, at a rate."),
    "audit": ("ottla.pipeline.jobs.audit", "audit", "Check all brokers' log directories against each other."),
    "generate": (
        "ottla.pipeline.jobs.generate",
        "generate",
        "Make a vehicle fleet's telemetry, the same for the same seed.",
    ),
    "check": (
        "ottla.pipeline.jobs.check",
        "check",
        "Judge what became of a fleet's records: lost, doubled, reordered.",
    ),
    "lag": ("ottla.pipeline.jobs.lag", "lag", "How far a job is behind, from its checkpoint; it may be dead."),
    "package": ("ottla.pipeline.jobs.package", "package", "Write ottla.zip and ottla_job.py for spark-submit."),
}
