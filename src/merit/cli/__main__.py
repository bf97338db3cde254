"""`python -m merit.cli`: for launchers that start a module."""

from merit.cli import main

main()
