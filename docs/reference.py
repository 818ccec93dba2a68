"""The reference: a page for each package, which begins with all its names, one line for each.

For each module come its equations, then its functions and classes. In a large package every module
has its own page.
"""

import inspect
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

FIRST = {  # packages in the order in which they are best read, with modules that come first there
    "core": ("softmax", "linear", "shapes", "attention", "multihead", "masks"), "variants": (),
    "layers": ("layer", "attention", "layer_norm", "rms_norm"), "models": (), "models.train": (),
    "models.weights": (), "models.analysis": (), "models.cost": (),
    "models.experiments": (), "checking": (), "checking.tracing": (), "show.pictures": (),
    "show.page": (), "show.walk": (), "show.lab": (),
    "teach.exercises": (), "teach.diagnosis": (), "teach.classroom": (), "bench": (),
    "conformance": (), "identifying": (),
}  # fmt: skip
MOST = 10  # names of a package whose modules share its page
NAME = re.compile(r"(?<!`)`([^`]+)`(?!`)")  # as docstrings write the name of an argument
STEPS = r"\w+_steps(_backward)?(_jvp)?"  # what functions of equations alone are called
INDEX = """# Reference

Each package has a page that lists its names. In [the core](core.md) and [layers](layers.md), every
module has its own page. It opens with the equations as they are in the file, forward next to
backward, and continues with the functions that check their arguments and call them.

{rows}

<a href="../genindex.html">All names in alphabetical order</a>

```{{toctree}}
:hidden:

{names}
```
"""


def write_reference(folder: Path) -> None:
    """Write the pages for Sphinx, and one that lists them."""
    folder.mkdir()
    rows = []
    for name in FIRST:
        package = import_module(f"mha_numpy.{name}")
        about, *_ = (package.__doc__ or "").splitlines()
        rows.append(f"- [mha_numpy.{name}]({name}.md): {about[0].lower()}{about[1:]}")
        _write_package(folder, package, name, about)
    names = "\n".join(f"{name} <{name}>" for name in FIRST)
    index = INDEX.format(rows="\n".join(rows), names=names)
    (folder / "index.md").write_text(index, encoding="utf-8")


def _write_package(folder: Path, package: ModuleType, name: str, about: str) -> None:
    """Write the page of a package and, if it is large, a page for each of its modules."""
    modules = _modules(package, FIRST[name])
    is_large = len(package.__all__) > MOST
    paged = [home for home in modules if is_large and home != package.__name__]
    page = [f"# mha_numpy.{name}", about]
    for home in modules:
        title, names = home.rpartition(".")[2], _names(package, home)
        path = home.removeprefix("mha_numpy.")
        link = f"[{title}]({path}.md)" if home in paged else f"[{title}](#{title})"
        about = _summary(import_module(home)).removeprefix(f"{title.capitalize()}: ")
        page += [f"**{link}:** {about[0].upper()}{about[1:]}", _listed(package, names)]
    page += [f"## {home.rpartition('.')[2]}\n\n{_section(package, home)}"
             for home in modules if home not in paged]  # fmt: skip
    paths = [home.removeprefix("mha_numpy.") for home in paged]
    for home, path in zip(paged, paths, strict=True):
        text = f"# {path}\n\n{_summary(import_module(home))}\n\n{_section(package, home)}"
        (folder / f"{path}.md").write_text(text, encoding="utf-8")
    if paths:
        tree = "\n".join(f"{path.rpartition('.')[2]} <{path}>" for path in paths)
        page.append(f"```{{toctree}}\n:hidden:\n\n{tree}\n```")
    (folder / f"{name}.md").write_text("\n\n".join(page), encoding="utf-8")


def _modules(package: ModuleType, first: tuple[str, ...]) -> list[str]:
    """Return the modules in which the package's public names are defined."""
    homes = {_home(package, name) for name in package.__all__}
    places = {f"{package.__name__}.{module}": place for place, module in enumerate(first)}
    return sorted(homes, key=lambda home: (places.get(home, len(first)), home))


def _home(package: ModuleType, name: str) -> str:
    """Return the module in which a public name is defined; that of a number is not known."""
    thing = getattr(package, name)
    return thing.__module__ if callable(thing) else package.__name__


def _names(package: ModuleType, home: str) -> list[str]:
    """Return the public names that a module defines, functions first."""
    names = [name for name in package.__all__ if _home(package, name) == home]
    return sorted(names, key=lambda name: _place(getattr(package, name)))


def _summary(thing: object) -> str:
    """Return the first line of a docstring; data has none of its own."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _listed(package: ModuleType, names: list[str]) -> str:
    """Return a line for each name: a link and what it is for."""
    rows = []
    for name in names:
        thing = getattr(package, name)
        about = ": " + NAME.sub(r"``\1``", _summary(thing)) if callable(thing) else ""
        rows.append(f"* :py:obj:`~{package.__name__}.{name}`{about}")
    listed = "\n".join(rows).replace("->", "\N{RIGHTWARDS ARROW}")  # which no line divides
    return f"```{{eval-rst}}\n{listed}\n```"


def _section(package: ModuleType, home: str) -> str:
    """Return what a module contains: its equations, then functions and classes in its order."""
    steps = [thing for name, thing in vars(import_module(home)).items()
             if re.fullmatch(STEPS, name) and getattr(thing, "__module__", "") == home]  # fmt: skip
    parts = [f"```python\n{inspect.getsource(step)}```" for step in steps]
    parts += [_directive(f"{package.__name__}.{name}", getattr(package, name))
              for name in _names(package, home)]  # fmt: skip
    return "\n\n".join(parts)


def _place(thing: object) -> tuple[bool, int]:
    """Functions come first, as they stand in the file."""
    if not callable(thing):
        return True, 0
    return inspect.isclass(thing), inspect.getsourcelines(thing)[1]


def _directive(path: str, thing: object) -> str:
    """Return what has Sphinx document a name."""
    if isinstance(thing, (dict, list)):  # too long to show whole
        lines = f".. py:data:: {path}\n\n   A {type(thing).__name__} of {len(thing)}."
    elif not callable(thing):
        lines = f".. py:data:: {path}\n   :value: {thing!r}"
    elif inspect.isclass(thing):
        lines = f".. autoclass:: {path}\n   :members:"
    else:
        lines = f".. autofunction:: {path}"
    return f"```{{eval-rst}}\n{lines}\n```"
