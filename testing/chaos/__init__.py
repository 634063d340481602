"""Chaos: clusters of real processes whose every link has its own proxy, a table of faults, and the runs that meet them with
workloads (docs/chaos.md)."""
