"""An error of somebody's code in a line: its type, its message and its place."""

import os
import re
import traceback
from pathlib import Path

LONGEST = 300  # characters of a message
OURS = Path(__file__).parents[1]
INSTALLED = re.compile(  # files that nobody wrote for an exercise
    rf"<(frozen|__array_function__)|.*(site|dist)-packages"
    rf"|{re.escape(f'{OURS}{os.sep}')}|{re.escape(f'{Path(os.__file__).parent}{os.sep}')}"
)


def told(error: BaseException) -> str:
    """Return an error in a line: its type, its message and its place."""
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:  # anybody's __str__
        text = "its message cannot be shown"
    return f"{type(error).__name__}{': ' if text else ''}{one_line(text, LONGEST)}{place(error)}"


def place(error: BaseException) -> str:
    """Return the line that an error comes from, the deepest one that is nobody's package."""
    if isinstance(error, SyntaxError) and error.lineno:
        file, number, line = error.filename or "", error.lineno, error.text or ""
    else:
        frames = traceback.extract_tb(error.__traceback__)
        frame = next((f for f in reversed(frames) if not INSTALLED.match(f.filename)), None)
        if frame is None:
            return ""
        file, number, line = frame.filename, frame.lineno or 0, frame.line or ""
    name = "the cell" if "ipykernel_" in file or "<ipython-" in file else Path(file).name
    source = f": `{one_line(line, 80)}`" if line.strip() else ""
    return f" (line {number} of {name}{source})"


def one_line(text: str, most: int) -> str:
    """Return a text in one line, without anything that a terminal obeys, cut to a length."""
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text[:9999].split()))
    return text if len(text) <= most else f"{text[: most - 3]}..."
