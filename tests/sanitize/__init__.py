"""The compiled kernel under the compiler's sanitizers (``make sanitize``)."""

from tests.sanitize import plugin

__all__ = ["plugin"]
