"""Sound in, transcripts out: decoding, features, segments, sessions."""

if not __name__.startswith("liveasr."):
    raise ImportError("import this room as liveasr.stream: from the root of the checkout a second copy would be loaded")
