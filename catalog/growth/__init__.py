"""Chooses how a round grows each bucket: by an update in place, or by a part that is joined later."""
