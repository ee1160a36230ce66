"""Rewrites commands on time-series collections as operations on buckets, with pure functions."""
