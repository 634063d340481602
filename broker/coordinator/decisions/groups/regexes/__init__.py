"""Subscriptions by regular expression (KIP-848's SubscribedTopicRegex)."""
