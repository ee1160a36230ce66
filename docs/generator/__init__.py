"""Generates the pages in ``docs/reference`` from the code: ``python -m docs.generator`` (``make reference``)."""
