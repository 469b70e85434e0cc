"""Metrics for Prometheus: what there is, how it is told, and who may hear it."""
