"""Groups that change between the classic protocol and the consumer protocol while their members are at work (KIP-848)."""
