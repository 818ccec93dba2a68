"""The reference: a page for each package, and in it for each module its equations first."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

FIRST = {  # packages in the order in which they are best read, with modules that come first there
    "core": ("softmax", "linear", "shapes", "attention", "multihead", "masks"),
    "layers": ("layer", "attention", "layer_norm", "rms_norm"), "models": (), "models.train": (),
    "models.weights": (), "models.analysis": (), "models.cost": (), "checking": (),
    "checking.tracing": (), "show.pictures": (), "show.page": (), "show.walk": (), "show.lab": (),
    "teach.exercises": (), "teach.diagnosis": (), "teach.classroom": (), "bench": (),
}  # fmt: skip
STEPS = r"\w+_steps(_backward)?"  # what functions of equations alone are called
INDEX = """# Reference

Each package has a page. [The core](core.md) and [layers](layers.md) show their equations first, as
in their files, with forward next to backward. Below them are the functions that check their
arguments and call them.

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
        sections = [_section(package, module) for module in _modules(package, FIRST[name])]
        page = "\n\n".join([f"# mha_numpy.{name}", about, *sections])
        (folder / f"{name}.md").write_text(page, encoding="utf-8")
    index = INDEX.format(rows="\n".join(rows), names="\n".join(FIRST))
    (folder / "index.md").write_text(index, encoding="utf-8")


def _modules(package: ModuleType, first: tuple[str, ...]) -> list[str]:
    """Return the modules in which the package's public names are defined."""
    homes = {_home(package, name) for name in package.__all__}
    places = {f"{package.__name__}.{module}": place for place, module in enumerate(first)}
    return sorted(homes, key=lambda home: (places.get(home, len(first)), home))


def _home(package: ModuleType, name: str) -> str:
    """Return the module in which a public name is defined; that of a number is not known."""
    thing = getattr(package, name)
    return thing.__module__ if callable(thing) else package.__name__


def _section(package: ModuleType, home: str) -> str:
    """Return what a module holds: its equations, then functions and classes as they stand there."""
    module = import_module(home)
    steps = [thing for name, thing in vars(module).items()
             if re.fullmatch(STEPS, name) and getattr(thing, "__module__", "") == home]  # fmt: skip
    names = [name for name in package.__all__ if _home(package, name) == home]
    names.sort(key=lambda name: _place(getattr(package, name)))
    about = (module.__doc__ or "").splitlines()[0]
    parts = [f"## {home.rpartition('.')[2]}", f"```{{eval-rst}}\n{about}\n```"]
    parts += [f"```python\n{inspect.getsource(step)}```" for step in steps]
    parts += [_directive(f"{package.__name__}.{name}", getattr(package, name)) for name in names]
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
