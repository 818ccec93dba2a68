"""A page as one file: a body, its styles and scripts, and the data that they read."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from mha_numpy.look import css_tokens
from mha_numpy.show.template import fill, read


@dataclass(frozen=True)
class Page:
    """A page that needs no network; a notebook shows it by itself."""

    shows: ClassVar[str] = "A page to play with"  # the name of its frame in a notebook

    page: str = field(repr=False)
    fallback: str = field(repr=False)  # what remains where scripts are taken out

    def to_html(self, path: Path | str | None = None) -> str:
        """Return the page, whole and for itself; also write it to a file if a path is given.

        Parameters
        ----------
        path : path, optional
        """
        if path is not None:
            Path(path).write_text(self.page, encoding="utf-8")
        return self.page

    def _repr_html_(self) -> str:
        frame = read("frame.html")
        return fill(frame, {"title": self.shows, "page": escape(self.page),
                            "fallback": self.fallback, "script": read("frame.js")})  # fmt: skip


def document(
    title: str,
    body: str,
    data: dict[str, Any],
    *,
    styles: Sequence[str],
    scripts: Sequence[str],
    start: str,
) -> str:
    """Return a page that needs no network: styles and scripts are names of files beside this one.

    `start` is the script that runs last; it finds the data under the name `data`.
    """
    script = fill(
        read("script.html"),
        {
            # inside of a script element only "<" could end it
            "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
            "script": "\n".join(_without_comments(read(name)) for name in scripts),
            "start": start,
        },
    )
    return fill(
        read("document.html"),
        {
            "title": escape(title),
            "style": css_tokens() + "\n".join(_closed(read(name)) for name in styles),
            "scripts": "script-src 'unsafe-inline'; ",
            "body": body + script,
        },
    )


def _closed(style: str) -> str:
    """Leave out comments, and the spaces beside signs."""
    return re.sub(r" ?([{};]|: ) ?", lambda found: found[1].strip(), _without_comments(style))


def _without_comments(code: str) -> str:
    """Leave out comments, and what indents lines: a page is short."""
    lines = (re.sub("  // .*", "", line).strip() for line in code.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/*")))
