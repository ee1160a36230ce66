"""Commands on time-series collections turned into operations on their buckets, as pure functions."""
