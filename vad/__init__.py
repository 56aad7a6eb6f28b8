"""Frames in, speech events out: where speech begins and ends."""

if not __name__.startswith("liveasr."):
    raise ImportError("import this room as liveasr.vad: from the root of the checkout a second copy would be loaded")
