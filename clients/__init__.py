"""People and programs that use a session: files, terminals, pages."""

if not __name__.startswith("liveasr."):
    raise ImportError(
        "import this room as liveasr.clients: from the root of the checkout a second copy would be loaded"
    )
