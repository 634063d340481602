"""Ottla: a message broker that speaks Kafka's wire protocol, with its own Raft metadata quorum."""

__version__ = "0.1.0"
