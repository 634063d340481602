"""The state machine of transactional ids (kraft.md 5.4, KIP-98, KIP-360, KIP-890)."""
