"""The node's metrics, put together and given out over HTTP."""
