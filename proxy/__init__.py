"""The proxy server: bytes, connections, sessions and the backend."""
