"""Rounds of batches: what is sent to the backend, and what its reply means for each batch."""
