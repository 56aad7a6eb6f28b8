"""`python -m liveasr`."""

from liveasr.cli import main

main()
