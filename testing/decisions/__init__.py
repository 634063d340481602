"""Random histories of the controller's decisions, held against what the logs of the replicas have."""
