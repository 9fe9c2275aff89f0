"""`python -m climb`: the command line."""

from __future__ import annotations

from climb.cli import main

if __name__ == "__main__":
    main()
