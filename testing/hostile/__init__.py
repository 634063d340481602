"""Requests that no client sends, and a node that must stand them."""
