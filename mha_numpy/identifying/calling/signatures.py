"""What a function says of itself: its arguments and its source."""

import ast
import inspect
import textwrap
from typing import Any, NamedTuple

REQUIRED = inspect.Parameter.empty
STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


class Argument(NamedTuple):
    """An argument of a function."""

    name: str
    default: Any = REQUIRED
    is_positional: bool = False  # may only be passed by position
    annotation: str = ""
    star: str = ""  # "*" or "**": it takes all others
    holder: str = ""  # the argument that holds it
    path: tuple[str | int, ...] = ()  # the way to it in there
    meant: str = ""  # what the source calls it

    @property
    def word(self) -> str:
        """What says most about it: its name, or what it is called where it is looked up."""
        return self.meant or self.name

    @property
    def is_required(self) -> bool:
        """Whether it has to be passed."""
        return self.default is REQUIRED


def source_of(thing: Any) -> tuple[str, ast.AST]:
    """Return the source of a function or a class, and its tree; both are empty if it has none."""
    try:
        source = textwrap.dedent(inspect.getsource(getattr(thing, "__code__", thing)))
        return source, ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        return "", ast.Pass()


def arguments_of(function: Any, inner: Any) -> list[Argument]:
    """Return the arguments; `inner` is what a decorator hides."""
    try:
        try:
            parameters = [*inspect.signature(function).parameters.values()]
        except Exception:  # a circle of __wrapped__, or a __signature__ that is none
            parameters = [*inspect.signature(inner, follow_wrapped=False).parameters.values()]
        if all(p.kind in STARS for p in parameters):
            own = inspect.signature(inner).parameters.values()
            parameters = [p for p in own if p.name != "self"]
        return [
            Argument(
                p.name, p.default, p.kind is p.POSITIONAL_ONLY,
                "" if p.annotation is REQUIRED else str(p.annotation), STARS.get(p.kind, ""),
            )
            for p in parameters
        ]  # fmt: skip
    except Exception:  # written in C
        return _documented(function)


def _documented(function: Any) -> list[Argument]:
    """Return the arguments that the first line of a docstring names: a function written in C."""
    line = str(getattr(function, "__doc__", "") or "").strip().split("->")[0]
    start, end = line.find("("), line.rfind(")")
    try:
        tree: Any = ast.parse(f"def f{line[start : end + 1]}: pass").body[0]
    except (SyntaxError, ValueError):
        return []
    args, found = tree.args, []
    plain = [*args.posonlyargs, *args.args]
    defaults = [REQUIRED] * (len(plain) - len(args.defaults)) + [*args.defaults]
    pairs = zip([*plain, *args.kwonlyargs], [*defaults, *args.kw_defaults], strict=True)
    for arg, default in pairs:
        value: Any = REQUIRED
        if default is not REQUIRED:
            try:
                value = ast.literal_eval(default)
            except ValueError:
                value = None
        found.append(Argument(arg.arg, value))
    return found
