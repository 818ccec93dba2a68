"""The files of pages, and how their places are filled; nothing large is imported for it."""

from importlib.resources import files


def read(name: str) -> str:
    """Return the text of a file of the page."""
    return files("mha_numpy.show").joinpath("page", name).read_text(encoding="utf-8")


def fill(template: str, parts: dict[str, str]) -> str:
    """Put each part in the place of its {{name}}; what a part holds is not looked at again.

    Examples
    --------
    >>> fill("<p>{{text}}</p>", {"text": "{{text}}"})
    '<p>{{text}}</p>'
    """
    pieces = template.split("{{")
    return pieces[0] + "".join(
        parts[name] + rest for name, rest in (piece.split("}}", 1) for piece in pieces[1:])
    )
