"""Coordinators: replicated state machines, each the keeper of one partition of an internal topic (docs/groups.md)."""
