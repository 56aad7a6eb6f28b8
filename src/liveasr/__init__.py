"""liveasr: speech to text, live and from files, with the FunASR models on an ordinary CPU.

Importing this package loads neither numpy nor any native library, so that the command line starts at once. The nouns
are in `liveasr.types`, the errors in `liveasr.errors`.
"""

__version__ = "0.1.0"
