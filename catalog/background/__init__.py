"""Work that no client waits for: joins, compression, and gathering the buckets of several processes."""
