"""``python -m mha_numpy`` is the program `mha-numpy`."""

import sys

from mha_numpy.cli import main

if __name__ == "__main__":
    sys.exit(main())
