"""Measures the proxy against the database alone; ``python -m bench --help``."""
