"""The hot path of the catalog behind one narrow interface.

Everything that touches the bytes of measurements: validating and splitting a measurement, and the state of
one open bucket (columns, size, schema, control min/max) with the documents that are built from it. The
compiled form, where it was built, and the interpreted form are equal to the byte.
"""
