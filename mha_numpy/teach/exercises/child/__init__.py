"""The code in the process of a student's function: the calls, and the messages about them.

It imports only NumPy, so that it also runs where the rest of this package is hidden. There it is a
separate package, which is why its files use relative imports.
"""

import os
import re
from pathlib import Path

FOLDER = Path(__file__).parent
PACKAGE = FOLDER.parents[2]
CHILD = f"{FOLDER}{os.sep}"  # how the files of this folder begin
INSIDE = f"{PACKAGE}{os.sep}"  # how the files of this package begin
INSTALLED = re.compile(  # files that do not belong to an exercise
    rf"<(frozen|__array_function__)|.*(site|dist)-packages"
    rf"|{re.escape(INSIDE)}|{re.escape(f'{Path(os.__file__).parent}{os.sep}')}"
)
