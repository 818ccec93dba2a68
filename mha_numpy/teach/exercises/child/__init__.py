"""What runs in the process of a student's function: the calls, and the messages about them.

NumPy is all that it imports, so that it also runs where nothing else of this package can be seen.
There it is a package by itself, which is why its files import each other by a dot.
"""

import os
import re
from pathlib import Path

FOLDER = Path(__file__).parent
PACKAGE = FOLDER.parents[2]
CHILD = f"{FOLDER}{os.sep}"  # how the files of this folder begin
INSIDE = f"{PACKAGE}{os.sep}"  # how the files of this package begin
INSTALLED = re.compile(  # files that nobody wrote for an exercise
    rf"<(frozen|__array_function__)|.*(site|dist)-packages"
    rf"|{re.escape(INSIDE)}|{re.escape(f'{Path(os.__file__).parent}{os.sep}')}"
)
