"""The state in memory of open buckets, and of the batches of measurements that are added to them."""
