"""The old name of the command `python -m model.atlas`, which still works."""

import sys

from model.atlas.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
