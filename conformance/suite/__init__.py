"""Upstream's conformance suite against a cluster of Ferry or of upstream's own components."""
