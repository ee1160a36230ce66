"""The bucket catalog: measurements in, bucket documents out, no I/O of its own."""
